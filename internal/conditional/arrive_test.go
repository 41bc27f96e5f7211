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

// stuck is a log whose append lasts until it is let go.
type stuck struct {
	*memory
	asked, free chan struct{}
}

func (s stuck) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	close(s.asked)
	<-s.free
	return s.memory.Append(ctx, end, records)
}

// A batch has told of its front, and another request keeps the log busy for as long as its next attempt may wait.
// Break it catches: the front told once more, as that of what is left, so that events count as written that are not.
// Seen to fail so.
func TestAFrontIsToldOnceThoughTheLogIsBusy(t *testing.T) {
	m := &scripted{&memory{dice: rand.New(rand.NewPCG(1, 1)), entries: []string{"1"}},
		[]conditional.Answer{{Offsets: []int64{1}, Verdict: sink.NotWritten, Err: errors.New("full")}}}
	log := conditional.NewLog(new(conditional.Outboxes))
	if err := log.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b := &sink.Batch{Records: []*sink.Record{{Value: []byte("1")}, {Value: []byte("2")}, {Value: []byte("3")}}}
	log.Produce(t.Context(), m, []*sink.Batch{b})
	if b.Outcome.Written != 1 {
		t.Fatalf("first attempt: got %+v, want a front of one record", b.Outcome)
	}
	b.Records = b.Records[1:]
	busy := stuck{m.memory, make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		log.Produce(t.Context(), busy, []*sink.Batch{{Records: []*sink.Record{{Value: []byte("4")}}}})
	}()
	<-busy.asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	log.Produce(ctx, m, []*sink.Batch{b})
	if o := b.Outcome; o.Written != 0 || o.Verdict != sink.NotWritten {
		t.Errorf("without a turn: got %+v, want nothing more written", o)
	}
	close(busy.free)
	<-done
}
