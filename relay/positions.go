package relay

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file holds how far topics were journaled, as Postgres has it, against what brokers have. A driver compares what
// it has seen itself; what happened to a topic while no relay ran shows here only.

// endsPatience bounds the look at one topic. What is not known by then shows when something is published there.
const endsPatience = 10 * time.Second

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

// comparePositions compares the ends of topics with their journaled positions, and their cluster with the one that had
// them, once they are known, until the context ends. It runs beside the sessions: a broker that does not answer keeps
// nothing waiting.
func (t *term) comparePositions(ctx context.Context) {
	driver, can := t.r.driver.(sink.Ender)
	for can {
		select {
		case tails := <-t.tails:
			for _, tail := range tails {
				t.compareEnds(ctx, driver, tail)
			}
			t.compareCluster(ctx, tails)
		case topics := <-t.announced:
			tails := make([]store.TopicTail, len(topics))
			for i, topic := range topics {
				tails[i].Topic = topic
			}
			t.compareCluster(ctx, tails)
		case <-ctx.Done():
			return
		}
	}
}

// compareCluster raises the alarm if another cluster had topics, and notes the one that has them now. Offsets tell
// nothing where others have filled the topics past ours.
func (t *term) compareCluster(ctx context.Context, tails []store.TopicTail) {
	driver, can := t.r.driver.(sink.Clustered)
	if !can || len(tails) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, endsPatience)
	defer cancel()
	id, err := driver.ClusterID(bounded)
	if err != nil || id == "" {
		t.r.log.Debug().Err(err).Msg("cannot tell which cluster answers")
		return
	}
	digest := fnv.New64a()
	digest.Write([]byte(id))
	is := int64(digest.Sum64()>>1) | 1
	var elsewhere []string
	var notes []store.Offset
	for _, tail := range tails {
		if tail.Cluster == is {
			continue
		}
		notes = append(notes, store.Offset{Topic: tail.Topic, Partition: store.TopicItself, Next: is})
		if tail.Cluster != 0 {
			elsewhere = append(elsewhere, tail.Topic)
		}
	}
	if len(elsewhere) > 0 {
		t.r.raiseElsewhere(id, elsewhere)
	}
	if err := t.r.store.SaveOffsets(ctx, notes); err != nil {
		t.r.log.Debug().Err(err).Msg("cannot note the cluster of topics; the next start does")
	}
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
