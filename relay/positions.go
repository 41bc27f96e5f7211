package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file holds how far topics were journaled, as Postgres has it, against what brokers have. A driver compares what
// it has seen itself; what happened to a topic while no relay ran shows here only.

// endsPatience bounds the look at one topic. What is not known by then shows when something is published there.
const endsPatience = 10 * time.Second

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

// comparePositions compares the ends of topics with their journaled positions, once they are known, until the context
// ends. It runs beside the sessions: a broker that does not answer keeps nothing waiting.
func (t *term) comparePositions(ctx context.Context) {
	driver, can := t.r.driver.(sink.Ender)
	for can {
		select {
		case tails := <-t.tails:
			for _, tail := range tails {
				t.compareEnds(ctx, driver, tail)
			}
		case <-ctx.Done():
			return
		}
	}
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
