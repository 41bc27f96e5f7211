package conditional_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// scripted gives these answers first.
type scripted struct {
	*memory
	answers []conditional.Answer
}

func (s *scripted) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	if len(s.answers) == 0 {
		return s.memory.Append(ctx, end, records)
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

// An append without an answer may arrive for as long as the log has the end that it expects. Catches: a batch that is
// called not written because the log was read since, is parked, and arrives after all; one that stays unknown
// after that.
func TestWhatMayArriveIsUnknownUntilAnotherAppendIsAccepted(t *testing.T) {
	away := conditional.Answer{Verdict: sink.NotWritten, Err: errors.New("no one leads the log")}
	m := &scripted{&memory{dice: rand.New(rand.NewPCG(1, 1))},
		[]conditional.Answer{{Verdict: sink.Unknown, Err: errors.New("no answer")}, away}}
	log := conditional.NewLog(new(conditional.Outboxes))
	if err := log.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	first := &sink.Batch{Records: []*sink.Record{{Value: []byte("1")}}}
	for range 2 {
		log.Produce(t.Context(), m, []*sink.Batch{first})
		if first.Outcome.Verdict != sink.Unknown {
			t.Errorf("without an answer: got %+v, want unknown", first.Outcome)
		}
	}
	second := &sink.Batch{Records: []*sink.Record{{Value: []byte("2")}}}
	log.Produce(t.Context(), m, []*sink.Batch{second}) // accepted: the first cannot arrive any more
	m.answers = []conditional.Answer{away}
	log.Produce(t.Context(), m, []*sink.Batch{first})
	if got := first.Outcome.Verdict; second.Outcome.Verdict != sink.Accepted || got != sink.NotWritten {
		t.Errorf("behind another append: got %+v, want not written", first.Outcome)
	}
}
