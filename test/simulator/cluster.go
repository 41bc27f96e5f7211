package simulator

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// cluster is a Kafka: topics with their records. Guarded by world.mu.
type cluster struct {
	w       *world
	topics  map[string]*clusterTopic
	changed chan struct{} // closed when metadata changed
	down    bool          // no broker answers
}

type clusterTopic struct {
	partitions []*clusterPartition
	missing    bool // it does not exist, or not yet
	forbidden  bool // we may not write to it
}

// clusterPartition is a partition, a stream, a lane of an endpoint or an exchange with its queue.
type clusterPartition struct {
	leader   int32
	troubled bool // answers as a partition without enough replicas
	log      []message
	written  []*attempts         // batches in it
	readBy   int                 // take-over of the last process that read its end back
	excused  int64               // below this offset no one can know what is ours: an end could not be read back
	blind    map[string]*process // topics of the stream whose end it could not read back, and has sent nothing since
	numbers  int64               // of messages of a stream so far
}

// message is a record in a topic; row is nil for one of another relay's.
type message struct {
	row    *row
	id     string
	source string
	copy   bool // of a dead letter
	at     time.Time
	topic  string           // in a stream
	mark   conditional.Mark // in a stream
	number int64            // of the message in a stream, by which the next one names it
}

// tailRecord is the message as a start reads it back. Called with mu held.
func (m *message) tailRecord(s *server, partition int32, offset int64) sink.TailRecord {
	rec := sink.TailRecord{Partition: partition, Offset: offset,
		Headers: [sink.TailHeaders][]byte{[]byte(m.id), []byte(m.source)}}
	switch {
	case m.row == nil:
	case m.copy || m.row.sent.position == nil:
		rec.Headers[1] = []byte(s.sourceOf(m.row.table))
	default:
		rec.Headers = [sink.TailHeaders][]byte{[]byte(m.id), m.row.sent.source, nil, m.row.sent.position, m.row.sent.late}
	}
	if m.row != nil && m.row.key != "" {
		rec.Key = []byte(m.row.key)
	}
	return rec
}

func newCluster(w *world) *cluster {
	c := &cluster{w: w, topics: map[string]*clusterTopic{}, changed: make(chan struct{})}
	d := w.dice(aboutCluster)
	for i := range w.profile.topics {
		c.topics[topicName(i)] = c.newTopic(w.profile.partitions)
	}
	if name := w.profile.config.DLQ.Topic; name != "" {
		c.topics[name] = c.newTopic(w.profile.partitionsOfDead())
	}
	if w.profile.missingTopic {
		t := c.topics[topicName(0)]
		t.missing = true
		w.fault(topicMissing)
		w.after(d.pause(0, w.profile.length), func() { c.heal(func() { t.missing = false }) })
	}
	return c
}

// newTopic makes a topic. A stream begins with an entry that is none, so that each has its offset for an index, from 1.
func (c *cluster) newTopic(partitions int) *clusterTopic {
	t := &clusterTopic{}
	for n := range partitions {
		t.partitions = append(t.partitions, &clusterPartition{leader: int32(n % 2)})
	}
	if k := &c.w.profile.kind; k.name == Conditional {
		t.partitions[0].log, t.partitions[0].blind = []message{{}}, map[string]*process{}
		for _, first := range c.topics {
			if k.oneStream {
				t.partitions = first.partitions
			}
		}
	}
	return t
}

func topicName(i int) string { return "outbox.event." + kindName(i) }
func kindName(i int) string  { return string(rune('a' + i)) }

// heal changes metadata.
func (c *cluster) heal(change func()) {
	change()
	close(c.changed)
	c.changed = make(chan struct{})
}

// plan draws when the cluster is in trouble.
func (c *cluster) plan() {
	w := c.w
	d := w.dice(aboutCluster, 1)
	window := func(begin, end func()) {
		at, long := d.pause(0, w.profile.length), d.pause(50*time.Millisecond, 5*time.Second)
		if w.profile.longOutage {
			at, long = at/2, max(long, 3*time.Second)
		}
		w.duringTrouble(at, func() {
			c.heal(begin)
			w.after(long, func() { c.heal(end) })
		})
	}
	if w.profile.clusterDown {
		window(func() { c.down = true; w.fault(brokersAway); w.note("the brokers are away") }, func() {
			c.down = false
			w.note("the brokers are back")
		})
	}
	if w.profile.topicTrouble {
		name := topicName(d.below(w.profile.topics))
		if dead := w.profile.config.DLQ.Topic; dead != "" && d.chance(0.5) {
			name = dead
		}
		t := c.topics[name]
		window(func() { t.forbidden = true; w.fault(topicForbidden); w.note("no right to write to %s", name) }, func() {
			t.forbidden = false
			w.note("a right to write to %s", name)
		})
	}
	if w.profile.partitionTrouble {
		name, n := topicName(d.below(w.profile.topics)), d.below(w.profile.partitions)
		p := c.topics[name].partitions[n]
		if d.chance(0.5) {
			window(func() { p.leader = -1; w.fault(noLeader); w.note("%s/%d has no leader", name, n) }, func() {
				p.leader = 1
				w.note("%s/%d has a leader", name, n)
			})
		} else {
			window(func() { p.troubled = true; w.fault(partitionTrouble); w.note("%s/%d is in trouble", name, n) }, func() {
				p.troubled = false
				w.note("%s/%d is well", name, n)
			})
		}
	}
}

// calm ends all trouble.
func (c *cluster) calm() {
	c.heal(func() {
		c.down = false
		for _, t := range c.topics {
			t.missing, t.forbidden = false, false
			for _, p := range t.partitions {
				p.troubled = false
				if p.leader < 0 {
					p.leader = 0
				}
			}
		}
	})
}

// partition of the batch; nil when its topic is missing.
func (c *cluster) partition(b *sink.Batch) *clusterPartition {
	t := c.topics[b.Topic]
	if t == nil || t.missing || int(b.Partition) >= len(t.partitions) {
		return nil
	}
	return t.partitions[b.Partition]
}

var (
	errAway      = errors.New("connection refused")
	errNoTopic   = errors.New("UNKNOWN_TOPIC_OR_PARTITION")
	errForbidden = errors.New("TOPIC_AUTHORIZATION_FAILED")
	errReplicas  = errors.New("NOT_ENOUGH_REPLICAS")
	errTimeout   = errors.New("request timed out")
	errLeader    = errors.New("NOT_LEADER_OR_FOLLOWER")
)

// appendBatch puts the batch's records at the end of the partition.
func (c *cluster) appendBatch(p *process, part *clusterPartition, a *attempts) {
	a.written, a.offset = true, int64(len(part.log))
	part.written = append(part.written, a)
	for _, r := range a.copies {
		part.log = append(part.log, message{id: r.id, copy: true, source: "ours", at: time.Now()})
		r.copied = true
		c.w.counts.Copies++
	}
	for _, r := range a.records {
		if r == nil {
			continue // said already
		}
		part.log = append(part.log, message{row: r, id: r.id, source: "ours", at: time.Now()})
		c.w.counts.Records++
		p.appended++
		c.w.judgeAppended(p, a.serial, part, r)
	}
	if p.dead {
		c.w.counts.LateAppends++
	}
}

// appendForeign puts a record of another relay there, which has our event's id and not our source.
func (c *cluster) appendForeign(id string, d *dice) {
	name := topicName(d.below(c.w.profile.topics))
	t := c.topics[name]
	part := t.partitions[d.below(len(t.partitions))]
	m := message{id: id, source: systemID + "/1/77", at: time.Now(), topic: name}
	m.mark = markOf(name, "", id, "another relay's")
	part.log = append(part.log, m)
	c.w.fault(foreignRecord)
}
