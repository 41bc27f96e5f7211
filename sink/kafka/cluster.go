package kafka

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// view is the driver's view of the cluster. It is immutable: a change makes a new one.
type view struct {
	topics  map[string]*topicView
	nodes   map[int32]string // broker id -> host:port
	changed chan struct{}    // closed when another view takes this one's place
}

type topicView struct {
	partitions []leader // by partition id
	replicas   int      // of each partition, as brokers told last; 0: not known
	err        error    // why the topic is not usable at present
	errSince   time.Time
	absent     time.Time // since when brokers say that there is no such topic, and have not told of one; zero: they do not

	// fewer is since when brokers have been telling a smaller number of partitions than ours; zero when they do not.
	fewer time.Time
}

type leader struct {
	node  int32 // -1: none
	epoch int32 // -1: not known; grows with each election

	// doubt is since when brokers have been telling an older epoch than ours; zero when they do not.
	doubt time.Time
}

// doubtPatience is how long an older leader epoch, or a smaller number of partitions, is ignored. A broker that lags
// behind catches up sooner; one that keeps to it speaks of a topic that was deleted and created again.
const doubtPatience = 3 * time.Second

type topicPartition struct {
	topic     string
	partition int32
}

// move is a change of leader, for the hook.
type move struct {
	topicPartition
	from, to int32
}

// resize is a change of the number of partitions, for the hook.
type resize struct {
	topic    string
	from, to int
}

// news is the difference of a view from the one before.
type news struct {
	moves   []move
	resizes []resize
}

// advance makes the view that follows v by an answer to a metadata request. It returns v itself when nothing changed.
func (v *view) advance(r *metadata.Response, now time.Time) (*view, news) {
	next := &view{topics: maps.Clone(v.topics), nodes: make(map[int32]string, len(r.Brokers)),
		changed: make(chan struct{})}
	for _, b := range r.Brokers {
		next.nodes[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	var n news
	same := maps.Equal(v.nodes, next.nodes)
	for i := range r.Topics {
		t := &r.Topics[i]
		was := v.topics[t.Name]
		is := was.advance(t, next.nodes, now)
		is.replicas = was.replicasBy(t)
		same = same && was.equal(is)
		next.topics[t.Name] = is
		n.compare(t.Name, was, is)
	}
	if same {
		// Only doubts may differ, which no one but the next advance looks at: keep them without waking anybody.
		next.changed = v.changed
	}
	return next, n
}

// advance makes the next state of a topic; t is nil before the first answer.
func (t *topicView) advance(r *metadata.ResponseTopic, nodes map[int32]string, now time.Time) *topicView {
	next := &topicView{err: codes.ErrorOf(r.ErrorCode, ""), errSince: now}
	if r.ErrorCode == codes.UnknownTopic {
		next.absent = now
	}
	if t != nil && t.err != nil {
		next.errSince = t.errSince
		if r.ErrorCode != 0 && !t.absent.IsZero() {
			next.absent = t.absent
		}
	}
	if r.ErrorCode != 0 && len(r.Partitions) == 0 {
		// Keep the number of partitions, so that keys keep their place while the topic is away; no one leads them, and
		// their epochs begin again should it be another topic when it returns.
		if t != nil {
			next.partitions = make([]leader, len(t.partitions))
			for i := range next.partitions {
				next.partitions[i] = leader{node: -1, epoch: -1}
			}
		}
		return next
	}
	next.partitions = make([]leader, len(r.Partitions))
	for i := range next.partitions {
		next.partitions[i] = leader{node: -1, epoch: -1}
	}
	if t.doubts(r) {
		if next.fewer = t.fewer; next.fewer.IsZero() {
			next.fewer = now
		}
		if now.Sub(next.fewer) < doubtPatience {
			next.partitions = append(next.partitions, t.partitions[len(r.Partitions):]...)
		} else {
			next.fewer = time.Time{}
		}
	}
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if p.PartitionIndex < 0 || int(p.PartitionIndex) >= len(next.partitions) {
			continue // a gap in the ids: those that are missing have no leader
		}
		told := leader{node: p.LeaderID, epoch: p.LeaderEpoch}
		if _, known := nodes[p.LeaderID]; !known {
			told.node = -1
		}
		if t != nil && int(p.PartitionIndex) < len(t.partitions) {
			told = t.partitions[p.PartitionIndex].advance(told, now)
		}
		next.partitions[p.PartitionIndex] = told
	}
	return next
}

// replicasBy is how many replicas each partition has by the answer, or had before it.
func (t *topicView) replicasBy(r *metadata.ResponseTopic) int {
	switch {
	case len(r.Partitions) > 0:
		return len(r.Partitions[0].ReplicaNodes)
	case t != nil:
		return t.replicas
	}
	return 0
}

// doubts reports that the answer has fewer partitions than the topic had. No topic shrinks: either it was deleted and
// created again, which is certain only when it was seen to be absent, or the broker does not know of those that were
// added. Keys that went by its number would be in other partitions until another broker is asked.
func (t *topicView) doubts(r *metadata.ResponseTopic) bool {
	return t != nil && t.absent.IsZero() && len(r.Partitions) < len(t.partitions)
}

// gone reports whether the topic was deleted for certain: for longer than a broker may lag behind its cluster, each one
// that was asked said that there is no such topic. While something is wrong another one is asked each time.
func (t *topicView) gone(now time.Time) bool {
	return !t.absent.IsZero() && codes.Is(t.err, codes.UnknownTopic) && now.Sub(t.absent) >= doubtPatience
}

// advance weighs what a broker tells against what is known: an older epoch is ignored for a while.
func (l leader) advance(told leader, now time.Time) leader {
	if told.epoch < 0 || told.epoch >= l.epoch {
		return told
	}
	if l.doubt.IsZero() {
		l.doubt = now
	}
	if now.Sub(l.doubt) < doubtPatience {
		return l
	}
	return told
}

// equal reports whether the two answer the same to Partitions and Node.
func (t *topicView) equal(o *topicView) bool {
	if t == nil || o == nil {
		return t == o
	}
	return (t.err == nil) == (o.err == nil) && slices.EqualFunc(t.partitions, o.partitions, func(a, b leader) bool {
		return a.node == b.node && a.epoch == b.epoch
	})
}

func (n *news) compare(topic string, was, is *topicView) {
	if was == nil || len(was.partitions) == 0 {
		return
	}
	if len(was.partitions) != len(is.partitions) && len(is.partitions) > 0 {
		n.resizes = append(n.resizes, resize{topic, len(was.partitions), len(is.partitions)})
	}
	for i := range min(len(was.partitions), len(is.partitions)) {
		if from, to := was.partitions[i], is.partitions[i]; from.node != to.node {
			n.moves = append(n.moves, move{topicPartition{topic, int32(i)}, from.node, to.node})
		}
	}
}

// without is the view in which the partition has no leader, if node leads it in v; else v itself. The epoch stays, so
// that an answer older than the refusal is recognised.
func (v *view) without(topic string, id, node int32) *view {
	t := v.topics[topic]
	if t == nil || int(id) >= len(t.partitions) || t.partitions[id].node != node {
		return v
	}
	next := &view{topics: maps.Clone(v.topics), nodes: v.nodes, changed: make(chan struct{})}
	changed := *t
	changed.partitions = slices.Clone(t.partitions)
	changed.partitions[id].node = -1
	next.topics[topic] = &changed
	return next
}

// settled reports whether nothing is about to change: each topic asked for is usable, or has been unusable for so long
// that it need not be asked for often, and the partitions of the usable ones have leaders.
func (v *view) settled(wanted []string, now time.Time) bool {
	for _, name := range wanted {
		t := v.topics[name]
		if t == nil || t.err != nil && now.Sub(t.errSince) < suspicion {
			return false
		}
		if t.err != nil {
			continue
		}
		if !t.fewer.IsZero() {
			return false
		}
		for _, l := range t.partitions {
			if l.node < 0 || !l.doubt.IsZero() {
				return false
			}
		}
	}
	return true
}
