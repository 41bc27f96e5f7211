package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a topic that begins again when it is added again (its tail would be read from a later moment), an
// offset that is not updated, another slot's topics. Seen to fail with the topic's own row taken for a partition.
func TestTailsBeginWhereTheOffsetsWereSaved(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	must(t, "add topics", s.AddTopics(t.Context(), []string{"a", "b"}))
	first, err := s.Tails(t.Context())
	must(t, "read the tails", err)
	must(t, "add one again", s.AddTopics(t.Context(), []string{"a", "c"}))
	must(t, "save", s.SaveOffsets(t.Context(),
		[]store.Offset{{Topic: "a", Partition: 0, Next: 7}, {Topic: "a", Partition: 3, Next: 1}}))
	must(t, "save again", s.SaveOffsets(t.Context(), []store.Offset{{Topic: "a", Partition: 0, Next: 9}}))
	other := owner(t, pg, usual(t, pg))
	must(t, "add another slot's topic", other.AddTopics(t.Context(), []string{"z"}))
	tails, err := s.Tails(t.Context())
	must(t, "read the tails", err)
	var got string
	for _, tail := range tails {
		got += fmt.Sprintf("%s %v ", tail.Topic, tail.From)
	}
	if want := "a map[0:9 3:1] b map[] c map[] "; got != want {
		t.Errorf("tails: got %s, want %s", got, want)
	}
	if len(first) != 2 || !tails[0].Since.Equal(first[0].Since) || time.Since(first[0].Since).Abs() > time.Hour {
		t.Errorf("since: got %v, then %v, want the moment of the first use", first, tails[0].Since)
	}
}
