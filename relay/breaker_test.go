package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// staysDead fails if the number of dead letters, once it is that, changes within a while.
func (b *bed) staysDead(n int) {
	b.t.Helper()
	b.waitDead(n)
	want := fmt.Sprint(n)
	for range 10 {
		if got := b.pg.Query(b.t, "SELECT count(*) FROM outbox_events_dlq"); got != want {
			b.t.Fatalf("dead letters: got %s, want it to stay %s", got, want)
		}
	}
}

// A deployment that writes bad events. Breaks it catches: more dead letters than dlq.breaker.count before the halt
// (seen to fail with a breaker that never opens), or in each life of a process that is killed and started again (seen
// to fail without the committed state); a halt that says not what to do; a relay that does not go on after resume,
// halts again for the same events, loses one, or breaks the order of a key.
func TestFloodOfDeadLettersHaltsUntilResumed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 10, Ratio: 0.05, Window: config.Duration(time.Minute)}
	b.c.ShutdownGrace = config.Duration(100 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 100, 7))
	b.waitRecorded(100)
	b.flood(60)
	position := b.here()
	b.waitHalt(r, relay.HaltFlood, "10 of ", "INVALID_HEADERS", "cdc-relay resume", "no more events become dead letters")
	b.pg.Exec(t, many(101, 50, 7))
	b.staysDead(10)
	b.wantUnconfirmed(position)
	mustRunOut(t, stop)

	r, stop = b.start()
	b.waitHalt(r, relay.HaltFlood)
	b.staysDead(10)
	b.resumeThrough(r, 60)
	b.waitRecorded(150)
	b.waitDead(60)
	b.waitReady(r)
	b.pg.WaitConfirmed(t, b.c.Postgres.Slot, 10*time.Second)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 150)
	if open := b.pg.Query(t, "SELECT breaker_at IS NOT NULL FROM cdc_relay_state"); open != "false" {
		t.Errorf("the state says that the breaker is open: got %s, want false", open)
	}
}

// resumeThrough has a person resume as often as it takes for all of a flood to die, which is the front of the stream.
// What has been received by then dies at once; what comes later counts again.
func (b *bed) resumeThrough(r *relay.Relay, all int) {
	b.t.Helper()
	dead := 0
	for dead < all {
		waiting := min(all, int(metric(b.t, r, "cdc_events_received_total")))
		r.Resumed()
		harness.Eventually(b.t, bedPatience, "what waits has died", func(context.Context) string {
			text := b.pg.Query(b.t, "SELECT count(*) FROM outbox_events_dlq")
			if _, err := fmt.Sscan(text, &dead); err != nil {
				return err.Error()
			}
			if role := r.Status().Role; dead < waiting || dead < all && role != relay.RoleHalted {
				return fmt.Sprintf("%d of %d, the relay is %s", dead, waiting, role)
			}
			return ""
		})
	}
}

// The broker refuses everything for a while, as with a policy that someone made too strict. Breaks it catches: a
// relay that waits for a person though the cause is gone (seen to fail without probes); events that were refused
// before it was and die after it (seen to fail so); an order that is broken by the second try; an attempt per probe of
// everything.
func TestFloodEndsWhenAProbeIsAccepted(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 5, Ratio: 0.05, Window: config.Duration(time.Minute)}
	var strict atomic.Bool
	strict.Store(true)
	j := newJudgeful(func([]byte, int) *sink.Reason {
		if strict.Load() {
			return &sink.Reason{Class: outbox.Permanent, Code: "POLICY_VIOLATION", Text: "too strict"}
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 500, 50)+`INSERT INTO outbox_events (aggregate_type, event_type, payload)
		SELECT 'order', 'made', jsonb_build_object('n', 0, 'keyless', i) FROM generate_series(1, 20) i;`)
	b.waitHalt(r, relay.HaltFlood, "POLICY_VIOLATION")
	b.staysDead(5)
	strict.Store(false)
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(515)
	b.waitNoneHeld(r)
	b.staysDead(5)
	mustStop(t, stop)
	for key, numbers := range j.numbers(t) {
		for i := 1; i < len(numbers) && key != ""; i++ {
			if numbers[i] <= numbers[i-1] {
				t.Errorf("key %s: %d came after %d", key, numbers[i], numbers[i-1])
			}
		}
	}
}

// Break it catches: dead letters, a few among many events or many in a long time, that halt the relay.
func TestFewDeadLettersAreNoFlood(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 5, Ratio: 0.05, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1000, 7))
	b.waitRecorded(1000)
	b.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'k' || i % 7, 'made', '{}', '[]' FROM generate_series(1, 40) i`)
	b.waitDead(40)
	b.waitReady(r)
	mustStop(t, stop)
}

// Break it catches: dlq.breaker.count_invalid: false, and rows that cannot be messages halt the relay.
func TestInvalidRowsAloneAreNoFloodWhereTheyDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{Count: 5, Ratio: 0.05, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.flood(200)
	b.waitDead(200)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	b.waitReady(r)
	mustStop(t, stop)
}

// Break it catches: with on_halt: exit, a process that does not end, or ends without a trace of the flood, so that the
// next one lets as many die again.
func TestFloodEndsTheProcessWhereHaltsDo(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.OnHalt = config.OnHaltExit
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 5, Ratio: 0, Window: config.Duration(time.Minute)}
	for range 2 {
		r, stop := b.start()
		harness.Eventually(t, 30*time.Second, "active, or halted again", func(context.Context) string {
			if role := r.Status().Role; role != relay.RoleActive && role != relay.RoleStopping && role != relay.RoleHalted {
				return fmt.Sprint(role)
			}
			return ""
		})
		b.flood(20)
		b.waitRole(r, relay.RoleStopping)
		if err := stop(); !isHalt(err, relay.HaltFlood) {
			t.Errorf("Run: got %v, want halt %s", err, relay.HaltFlood)
		}
		b.staysDead(5)
	}
}

// One resume for a flood that is much longer than what the relay has received. Breaks it catches: a halt for each
// dlq.breaker.count of rows that were there when a person decided about them; a resume that lets later rows pass.
// Seen to fail with until_now not looked at (it halts again), and with every event pardoned (it does not).
func TestOneResumeEndsAFloodOfAnyLength(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 10, Ratio: 0.05, Window: config.Duration(time.Hour)}
	b.c.Limits.InFlightEvents = 50
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.flood(3000)
	b.waitHalt(r, relay.HaltFlood, "resume --until-now")
	b.waitExecuted(b.ask(store.RequestResume, store.Filter{UntilNow: true}))
	b.waitDead(3000)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	b.flood(20)
	b.waitHalt(r, relay.HaltFlood)
	b.staysDead(3010)
	mustStop(t, stop)
}

// Break it catches: with dlq.breaker.count_invalid: false, rows that cannot be messages that halt the relay, at once or
// when one of another kind comes after a restart; refusals of a broker that do not halt it. Seen to fail with the codes
// counted in memory, and in the table.
func TestInvalidRowsAloneNeedNotHaltTheRelay(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.DLQ.Breaker = config.Breaker{Count: 10, Ratio: 0, Window: config.Duration(time.Hour)}
	refuses := func() sink.Driver {
		return newJudgeful(func(value []byte, _ int) *sink.Reason {
			if string(value) != `{"n": 1}` {
				return nil
			}
			return &sink.Reason{Class: outbox.Permanent, Code: "POLICY_VIOLATION", Text: "too strict"}
		})
	}
	r, stop := b.startWith(refuses())
	b.waitRole(r, relay.RoleActive)
	b.flood(200)
	b.waitDead(200)
	b.waitReady(r)
	mustStop(t, stop)

	r, stop = b.startWith(refuses())
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("order", "", `{"n": 1}`, ""))
	b.waitDead(201)
	b.waitReady(r)
	for range 20 {
		b.pg.Exec(t, insert("order", "", `{"n": 1}`, ""))
	}
	b.waitHalt(r, relay.HaltFlood, "POLICY_VIOLATION")
	b.staysDead(210)
	_ = stop() // what was refused waits for the breaker
}
