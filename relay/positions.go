package relay

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file holds how far topics were journaled, as Postgres has it, against what brokers have. A driver compares what
// it has seen itself; what happened to a topic while no relay ran shows here only.

// endsPatience bounds the look at one topic. What is not known by then shows when something is published there.
const endsPatience = 10 * time.Second

// originsEvery is how often topics and their cluster are compared, and the pause is at least originsRest times as long
// as that takes.
const (
	originsEvery = time.Minute
	originsRest  = 100
)

// announcements is how many announcements of topics may wait for the note of their cluster.
const announcements = 64

// expectPositions notes the positions of the process before, and has the ends of the topics compared with them.
func (s *session) expectPositions(tails []store.TopicTail) {
	for _, t := range tails {
		s.term.settler.Expect(t.Topic, t.From)
	}
	select {
	case s.term.tails <- tails:
	default: // an earlier session of the term has asked
	}
}

// comparePositions compares the ends of topics with their journaled positions, and topics and their cluster with those
// that had them, once they are known, until the context ends. It runs beside the sessions: a broker that does not
// answer keeps nothing waiting.
func (t *term) comparePositions(ctx context.Context) {
	ender, can := t.r.driver.(sink.Ender)
	if !can {
		return
	}
	o := origins{known: map[string]origin{}, unsaved: map[string]bool{}}
	timer := time.NewTimer(originsEvery)
	defer timer.Stop()
	for {
		select {
		case tails := <-t.tails:
			for _, tail := range tails {
				o.known[tail.Topic] = origin{tail.Cluster, tail.ID}
			}
			again := t.compareOrigins(ctx, &o)
			for _, tail := range tails {
				if !slices.Contains(again, tail.Topic) {
					t.compareEnds(ctx, ender, tail)
				}
			}
		case topics := <-t.announced:
			for _, topic := range topics {
				if _, is := o.known[topic]; !is {
					o.known[topic] = origin{}
				}
			}
			t.compareOrigins(ctx, &o)
		case began := <-timer.C: // a topic may be created again, and filled, between two of our records
			if t.session.Load() != nil {
				t.compareOrigins(ctx, &o)
			}
			timer.Reset(max(originsEvery, originsRest*time.Since(began)))
		case <-ctx.Done():
			return
		}
	}
}

// origin is where a topic's records of ours went: digests of its cluster and of its id there. 0: not known.
type origin struct{ cluster, id int64 }

// origins are those of the topics that we publish to. Owned by comparePositions.
type origins struct {
	known   map[string]origin
	unsaved map[string]bool // topics whose origin is not noted in Postgres yet
}

// digest is a number that stands for an id, never 0.
func digest(id string) int64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return int64(h.Sum64()>>1) | 1
}

// compareOrigins raises the alarms if another cluster had topics, or this one has other topics under their names, and
// notes what is there now; offsets tell nothing where others have filled the topics past ours. It returns the topics
// that are other ones.
func (t *term) compareOrigins(ctx context.Context, o *origins) (again []string) {
	driver, can := t.r.driver.(sink.Clustered)
	if !can || len(o.known) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, endsPatience)
	defer cancel()
	cluster, err := driver.ClusterID(bounded)
	if err != nil {
		t.r.log.Debug().Err(err).Msg("cannot tell which cluster answers")
		return nil
	}
	is, err := askOrigins(bounded, driver, cluster, o.known)
	if err != nil {
		t.r.log.Debug().Err(err).Msg("cannot tell whether topics were created again")
	}
	var elsewhere []string
	for topic, now := range is {
		switch was := o.known[topic]; {
		case was.cluster != 0 && now.cluster != was.cluster:
			elsewhere = append(elsewhere, topic)
		case was.id != 0 && now.id != was.id:
			again = append(again, topic)
		}
		o.known[topic], o.unsaved[topic] = now, true
	}
	if len(elsewhere) > 0 {
		slices.Sort(elsewhere)
		t.r.raiseElsewhere(cluster, elsewhere)
	}
	for _, topic := range again {
		t.r.raiseCreatedAgain(topic)
	}
	t.noteOrigins(ctx, o)
	return again
}

// askOrigins gives the topics whose origin is not the one that is known, with what it is. An id that is another one is
// asked for again: what a server answers differently each time is no id.
func askOrigins(ctx context.Context, driver sink.Clustered, cluster string,
	known map[string]origin) (is map[string]origin, err error) {
	is = map[string]origin{}
	ids, err := driver.TopicIDs(ctx, slices.Sorted(maps.Keys(known)))
	var others []string
	for topic, was := range known {
		now := was
		if cluster != "" {
			now.cluster = digest(cluster)
		}
		if ids[topic] != "" {
			now.id = digest(ids[topic])
		}
		if now != was {
			is[topic] = now
		}
		if now.id != was.id {
			others = append(others, topic)
		}
	}
	if len(others) == 0 {
		return is, err
	}
	again, err := driver.TopicIDs(ctx, others)
	for _, topic := range others {
		if again[topic] != ids[topic] {
			delete(is, topic)
		}
	}
	return is, err
}

// noteOrigins writes down what is known now, as far as it is not.
func (t *term) noteOrigins(ctx context.Context, o *origins) {
	var notes []store.Offset
	for topic := range o.unsaved {
		is := o.known[topic]
		notes = append(notes, store.Offset{Topic: topic, Partition: store.TopicItself, Next: is.cluster})
		if is.id != 0 {
			notes = append(notes, store.Offset{Topic: topic, Partition: store.TopicID, Next: is.id})
		}
	}
	if err := t.r.store.SaveOffsets(ctx, notes); err != nil {
		t.r.log.Debug().Err(err).Msg("cannot note the cluster and the ids of topics; trying again")
		return
	}
	clear(o.unsaved)
}

// raiseCreatedAgain is the alarm for a topic that is another one than the one that was published to.
func (r *Relay) raiseCreatedAgain(topic string) {
	const text = "the topic was deleted and created again: it has another id than the topic that was published to. What " +
		"that one had is in the journal as published and will not be sent again; cdc-relay verify names what is missing, " +
		"and verify --repair publishes those whose rows are still in the table"
	r.alarms.Raise(sink.Alarm{Kind: sink.AlarmOffsetsWentBack, Topic: topic, Partition: sink.WholeTopic, Text: text})
	r.log.Error().Str("kind", sink.AlarmOffsetsWentBack).Str("topic", topic).Msg(text)
}

// raiseElsewhere is the alarm for topics that another cluster had.
func (r *Relay) raiseElsewhere(id string, topics []string) {
	text := fmt.Sprintf("another cluster (id %s) answers at the brokers' addresses than the one that this topic was "+
		"journaled on, and %d other topics: its data was replaced, or the addresses lead elsewhere. What was published is "+
		"in the journal and will not be sent again; cdc-relay verify names what is not there, and verify --repair publishes "+
		"those whose rows are still in the table. If the topics were moved with their records, acknowledge this",
		id, len(topics)-1)
	r.alarms.Raise(sink.Alarm{Kind: sink.AlarmClusterChanged, Topic: topics[0], Partition: sink.WholeTopic, Text: text})
	r.log.Error().Str("kind", sink.AlarmClusterChanged).Str("topic", topics[0]).Msg(text)
}

func (t *term) compareEnds(ctx context.Context, driver sink.Ender, tail store.TopicTail) {
	bounded, cancel := context.WithTimeout(ctx, endsPatience)
	defer cancel()
	ends, err := driver.Ends(bounded, tail.Topic)
	if err != nil {
		t.r.log.Debug().Err(err).Str("topic", tail.Topic).Msg("cannot compare the topic's end with its journal")
	}
	for partition, was := range tail.From {
		if is, known := ends[partition]; known && is < was {
			t.r.raiseBehind(frontier.Behind{Topic: tail.Topic, Partition: partition, Was: was, Is: is})
		}
	}
}

// raiseBehind is the alarm for a partition that ends before what is journaled.
func (r *Relay) raiseBehind(b frontier.Behind) {
	text := fmt.Sprintf("the topic's partition ends at offset %d and was journaled up to %d: the topic was deleted and "+
		"created again while no relay ran, the broker's data was replaced, or it lost records. They are in the journal as "+
		"published and will not be sent again; cdc-relay verify names them, and verify --repair publishes those whose rows "+
		"are still in the table", b.Is, b.Was)
	r.alarms.Raise(sink.Alarm{Kind: sink.AlarmOffsetsWentBack, Topic: b.Topic, Partition: b.Partition, Text: text})
	r.log.Error().Str("kind", sink.AlarmOffsetsWentBack).Str("topic", b.Topic).Int32("partition", b.Partition).Msg(text)
}
