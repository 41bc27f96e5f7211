package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// arriving is a broker at whose topic a record of a relay that was replaced has arrived.
type arriving struct {
	*judgeful

	mu      sync.Mutex // guards what follows
	ours    func(source string) bool
	open    int64
	since   time.Time
	arrived sink.TailRecord
	from    []int64 // what was read back from
}

func (a *arriving) Recognize(ours func(source string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ours = ours
}

func (a *arriving) Unclaimed() (topic string, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return "outbox.event.order", a.since
}

func (a *arriving) Left() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.since = 0, time.Time{}
}

func (a *arriving) Tail(_ context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	a.mu.Lock()
	from, rec := q.From[0], a.arrived
	a.from = append(a.from, from)
	a.mu.Unlock()
	if rec.Offset < from {
		return nil
	}
	return each(rec)
}

// newArriving refuses the event for now, and takes its message from what is refused.
func newArriving(event string) *arriving {
	j := newJudgeful(func(value []byte, _ int) *sink.Reason {
		if string(value) == event {
			return maybeLater
		}
		return nil
	})
	j.SetTopic("outbox.event.order", 1)
	a, answer := &arriving{judgeful: j}, j.Answer
	j.Answer = func(attempt sinktest.Attempt) sinktest.Plan {
		plan := answer(attempt)
		a.mu.Lock()
		defer a.mu.Unlock()
		if plan.Outcome.Verdict == sink.Unanswered {
			plan.Outcome.Verdict = sink.Accepted
		}
		plan.Outcome.Open = a.open
		for _, r := range attempt.Batch.Records {
			if string(r.Value) != event {
				continue
			}
			a.arrived = sink.TailRecord{Key: bytes.Clone(r.Key), Offset: 5}
			for i, name := range []string{0: "id", 1: "x-outbox-source", 3: "x-outbox-position"} {
				value, _ := r.Headers.Get(name)
				a.arrived.Headers[i] = bytes.Clone(value)
			}
		}
		return plan
	}
	return a
}

func (a *arriving) arrive(open int64, since time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open, a.since = open, since
}

func (a *arriving) readFrom() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.from
}

// A record that a replaced relay had sent arrives after the topics were read back, and its event is parked. Breaks it
// catches: the offsets that are saved pass it, so that the next start does not see it and sends it again; a relay that
// never comes to know of it, and reads back ever more. Seen to fail with offsets that are saved as before, and without
// another look.
func TestARecordThatArrivesLateIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Retry.InitialBackoff, b.c.Retry.MaxBackoff = config.Duration(time.Hour), config.Duration(time.Hour)
	a := newArriving(`{"n": 1}`)
	r, stop := b.startWith(a)
	b.waitRole(r, relay.RoleActive)
	const saved = "SELECT max(next_offset) FROM cdc_relay_offset WHERE topic = 'outbox.event.order' AND partition = 0"
	b.pg.Exec(t, many(2, 5, 1)+many(1, 1, 1))
	b.waitQuery("the event is parked", "SELECT count(*) FROM cdc_relay_parked", "1")
	b.waitQuery("offsets are saved", saved, "5")
	if a.mu.Lock(); !a.ours(string(a.arrived.Headers[1])) || a.ours("7/1/5") {
		t.Errorf("whose records are ours: source %s is not told from another", a.arrived.Headers[1])
	}
	a.mu.Unlock()
	a.arrive(5, time.Now())
	for i := range 2 { // the second time, what is saved covers the first
		before := b.here()
		b.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			VALUES ('order', 'other', 'made', '{"n": %d}')`, 7+i))
		b.waitRecorded(6 + i)
		b.waitQuery("progress is saved", "SELECT confirmed > '"+before+"' FROM cdc_relay_state", "true")
	}
	b.waitQuery("what is saved is in front of it", saved, "5")
	a.arrive(5, time.Now().Add(-time.Minute))
	b.waitQuery("its event is recorded", "SELECT count(*) FROM cdc_relay_parked", "0")
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(9, 1, 1))
	b.waitRecorded(9)
	mustStop(t, stop)
	if got := fmt.Sprint(a.readFrom()); got != "[5]" {
		t.Errorf("the topic was read back from %s, want [5]", got)
	}
	a.wantInOrder(t, 9, 1)
}

// A relay stops while such a record is not recorded. Break it catches: a stop that says it was clean, so that the next
// start does not read the topic back. Seen to fail so.
func TestAStopBeforeALateRecordIsRecordedIsNotClean(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	a := newArriving("")
	r, stop := b.startWith(a)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 1))
	b.waitRecorded(5)
	a.arrive(3, time.Now())
	mustStop(t, stop)
	if got := b.pg.Query(t, "SELECT dirty FROM cdc_relay_state"); got != "true" {
		t.Errorf("dirty: got %s, want true", got)
	}
}
