package simulator

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// AddTopics notes topics that records will go to.
func (t *tables) AddTopics(ctx context.Context, topics []string) error {
	return t.fenced(ctx, "add topics", func(db *database) error {
		for _, topic := range topics {
			t.offsetsOf(db, topic)
		}
		t.durable()
		return nil
	})
}

func (t *tables) offsetsOf(db *database, topic string) *topicOffsets {
	if db.offsets[t.slot] == nil {
		db.offsets[t.slot] = map[string]*topicOffsets{}
	}
	o := db.offsets[t.slot][topic]
	if o == nil {
		o = &topicOffsets{next: map[int32]int64{}, since: clock()}
		db.offsets[t.slot][topic] = o
	}
	return o
}

// SaveOffsets notes how far partitions are journaled.
func (t *tables) SaveOffsets(ctx context.Context, offsets []store.Offset) error {
	if len(offsets) == 0 {
		return nil
	}
	return t.fenced(ctx, "save offsets", func(db *database) error {
		for _, o := range offsets {
			of := t.offsetsOf(db, o.Topic)
			was, had := of.next[o.Partition]
			of.next[o.Partition] = o.Next
			t.w.judgeOffset(t, o)
			t.relaxed(func() {
				if of.next[o.Partition] = was; !had {
					delete(of.next, o.Partition)
				}
			})
		}
		return nil
	})
}

// Tails are the topics to be read back.
func (t *tables) Tails(ctx context.Context) (tails []store.TopicTail, err error) {
	err = t.do(ctx, "tails", func(db *database) error {
		for _, topic := range sortedKeys(db.offsets[t.slot]) {
			o := db.offsets[t.slot][topic]
			tail := store.TopicTail{Topic: topic, From: map[int32]int64{}, Since: o.since}
			for partition, next := range o.next {
				tail.From[partition] = next
			}
			tails = append(tails, tail)
		}
		return nil
	})
	return tails, err
}

// Recognize says which events are terminal: no id is used again.
func (t *tables) Recognize(ctx context.Context, events []store.Sighting) ([]store.Recognition, error) {
	if len(events) == 0 {
		return nil, nil
	}
	found := make([]bool, len(events))
	err := t.known(ctx, events, found)
	said := make([]store.Recognition, len(events))
	for i := range found {
		if found[i] {
			said[i] = store.Recorded
		}
	}
	return said, err
}

// movedTo reports whether an event has another place in its topic now; one without an offset may have.
func movedTo(was, is store.Published) bool {
	return is.Offset < 0 || was.Topic != is.Topic || was.Partition != is.Partition || was.Offset != is.Offset
}
