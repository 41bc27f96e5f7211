package conditional_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// sourced is a log whose entries begin with their source.
type sourced struct{ *memory }

func (s sourced) Behind(ctx context.Context, end int64, each func(conditional.Found)) (int64, error) {
	return s.memory.Behind(ctx, end, func(f conditional.Found) {
		f.Source, _, _ = strings.Cut(s.entries[f.Offset-1], " ")
		each(f)
	})
}

// What other processes have sent arrives after a relay has read the log: records of its own outboxes and of others.
// Breaks it catches: a record of ours that is passed without a sign before anything claims it; another relay's that is
// taken for ours, so that nothing is ever complete behind it. Seen to fail with Open left out, and with all taken for
// ours.
func TestWhatArrivesIsOpenUntilItIsClaimed(t *testing.T) {
	m := sourced{&memory{dice: rand.New(rand.NewPCG(1, 1)), entries: []string{"ours 1"}}}
	var outboxes conditional.Outboxes
	outboxes.Recognize(func(source string) bool { return source == "ours" })
	log := conditional.NewLog(&outboxes)
	if err := log.Start(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	m.entries = append(m.entries, "theirs 1", "ours 2", "ours 3", "theirs 2")
	began := time.Now()
	for _, step := range []struct {
		send     string
		at, open int64
	}{
		{"ours 4", 6, 3},
		{"ours 3", 4, 3},
		{"ours 5", 7, 3},
		{"ours 2", 3, 0},
		{"ours 6", 8, 0},
	} {
		b := &sink.Batch{Records: []*sink.Record{{Value: []byte(step.send)}}}
		log.Produce(t.Context(), m, []*sink.Batch{b})
		o := b.Outcome
		if o.Verdict != sink.Accepted || o.FirstOffset != step.at || o.Open != step.open {
			t.Errorf("%s: got %+v, want it at %d with %d open", step.send, o, step.at, step.open)
		}
		var name string
		var since time.Time
		conditional.First(&name, &since, "log", log)
		if (name != "") != (step.open != 0) || !since.IsZero() && since.Before(began) {
			t.Errorf("%s: got %q found at %v, with %d open", step.send, name, since, step.open)
		}
	}
	log.Forget()
	if got := strings.Join(m.entries, ", "); got != "ours 1, theirs 1, ours 2, ours 3, theirs 2, ours 4, ours 5, ours 6" {
		t.Errorf("log: got %s", got)
	}
}
