package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

var never = &sink.Reason{Class: outbox.Permanent, Code: "NEVER", Text: "not this one"}

// asker is a store of someone who asks: it owns nothing.
func (b *bed) asker() *store.Store {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), relay.StoreConfig(b.c))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Close)
	return s
}

func (b *bed) ask(kind string, f store.Filter) (id int64) {
	b.t.Helper()
	id, err := b.asker().AddRequest(b.t.Context(), kind, f, "ann@host", "because")
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// waitExecuted waits until the request is closed and its events are published or dead again.
func (b *bed) waitExecuted(id int64) (r *store.Request) {
	b.t.Helper()
	s := b.asker()
	harness.Eventually(b.t, 60*time.Second, "request executed", func(ctx context.Context) string {
		var err error
		if r, err = s.Request(ctx, id); err != nil {
			return err.Error()
		}
		if r.FinishedAt == nil || r.Waiting > 0 {
			said, _ := json.Marshal(r)
			return string(said)
		}
		return ""
	})
	return r
}

// replayed are the numbers of the events in the topic that say that they were replayed, by key, in order; the others
// are fresh.
func (j *judgeful) replayed(t *testing.T) (replayed, fresh map[string][]int) {
	t.Helper()
	log := j.Log("outbox.event.order")
	slices.SortFunc(log, func(a, b sinktest.Message) int { return a.Arrival - b.Arrival })
	replayed, fresh = map[string][]int{}, map[string][]int{}
	for _, m := range log {
		var n int
		if _, err := fmt.Sscanf(string(m.Value), `{"n": %d`, &n); err != nil {
			t.Fatalf("value %q: %v", m.Value, err)
		}
		into := fresh
		if v, found := m.Headers.Get("x-outbox-replay"); found {
			into = replayed
			if string(v) != "1" {
				t.Errorf("x-outbox-replay of %d: got %q, want 1", n, v)
			}
		}
		into[string(m.Key)] = append(into[string(m.Key)], n)
	}
	return replayed, fresh
}

// Breaks it catches: a replay out of order, of the wrong ones, or that does not say that it is one; a dead letter that
// is not closed, or not with who and why; a replay that stops the live events of its key. Seen to fail without the
// header, and with dead letters left open.
func TestReplayedDeadLettersArriveInOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	fixed := make(chan struct{})
	j := newJudgeful(func(value []byte, _ int) *sink.Reason {
		select {
		case <-fixed:
			return nil
		default:
		}
		if strings.Contains(string(value), "0}") {
			return never
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 300, 7))
	b.waitDead(30)
	b.waitRecorded(270)
	// Deaths are told in another order than that of the events.
	b.pg.Exec(t, "UPDATE outbox_events_dlq SET dead_at = dead_at - ((payload->>'n')::int % 7) * interval '1 minute'")
	close(fixed)
	key := "k3"
	first := b.waitExecuted(b.ask(store.RequestReplay, store.Filter{Key: &key}))
	if first.Done == 0 || *first.Total != first.Done {
		t.Errorf("replay of one key: got %d of %d", first.Done, *first.Total)
	}
	if took := first.FinishedAt.Sub(first.RequestedAt); took > 10*time.Second {
		t.Errorf("a running relay took %v, want it at once (10s on a loaded machine)", took)
	}
	all := b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	if first.Done+all.Done != 30 {
		t.Errorf("replayed: got %d and %d, want 30 together", first.Done, all.Done)
	}
	b.waitRecorded(300)
	b.pg.Exec(t, many(301, 100, 7))
	b.waitRecorded(400)
	b.waitNoneHeld(r)
	mustStop(t, stop)
	replayed, fresh := j.replayed(t)
	n := 0
	for _, some := range []map[string][]int{replayed, fresh} {
		for key, numbers := range some {
			n += len(numbers)
			if !slices.IsSorted(numbers) {
				t.Errorf("key %s: got %v, want them in order", key, numbers)
			}
		}
	}
	if n != 400 {
		t.Errorf("records: got %d, want 400", n)
	}
	got := b.pg.Query(t, `SELECT count(*) || ' ' || string_agg(DISTINCT resolved_by || ' ' || note, ',')
		FROM outbox_events_dlq WHERE replayed_at IS NOT NULL AND discarded_at IS NULL`)
	if want := "30 ann@host because"; got != want {
		t.Errorf("closed dead letters: got %q, want %q", got, want)
	}
}

// Breaks it catches: a replay that is lost, or spent, when the event is refused once more. Seen to fail with its second
// death not noted.
func TestReplayedEventThatDiesAgainIsADeadLetterAgain(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := newJudgeful(func(value []byte, try int) *sink.Reason {
		if is(value, 5) && try <= 2 {
			return never
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 20, 3))
	b.waitDead(1)
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	got := b.pg.Query(t, "SELECT attempts || ' ' || error_code || ' ' || (replayed_at IS NULL) FROM outbox_events_dlq")
	if got != "2 NEVER true" {
		t.Errorf("dead letter: got %q, want 2 attempts, open", got)
	}
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	b.waitRecorded(20)
	b.waitNoneHeld(r)
	mustStop(t, stop)
}

// Events of hot keys keep being refused permanently while others of these keys are replayed. Breaks it catches: a newer
// event that overtakes one that is parked behind a replay, because it waited in memory for a dead letter; a retry into
// a lane that waits in memory, which ends the process.
func TestReplaysOnHotKeysLeaveTheirNewerEventsInOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Limits.InFlightEvents = 500
	j := newJudgeful(func(value []byte, try int) *sink.Reason {
		var n int
		_, _ = fmt.Sscanf(string(value), `{"n": %d`, &n)
		if n%20 == 7 && try <= 1+n%3 {
			return never
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	const n, keys = 12000, 2
	asking, stopAsking := context.WithCancel(t.Context())
	asked := make(chan struct{})
	s := b.asker()
	go func() {
		defer close(asked)
		for asking.Err() == nil {
			id, err := s.AddRequest(asking, store.RequestReplay, store.Filter{All: true}, "ann", "")
			for err == nil { // or what died last would wait behind all that were asked for before
				var request *store.Request
				if request, err = s.Request(asking, id); err == nil && request.FinishedAt != nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}()
	b.commit("order", 1, n, keys)
	b.waitRecorded(n)
	stopAsking()
	<-asked
	b.waitNoneHeld(r)
	mustStop(t, stop)
	replayed, fresh := j.replayed(t)
	for key, numbers := range fresh {
		if !slices.IsSorted(numbers) {
			at := slices.IndexFunc(numbers[1:], func(int) bool { return false })
			for i := 1; i < len(numbers); i++ {
				if numbers[i] < numbers[i-1] {
					at = i
					break
				}
			}
			t.Errorf("key %s: %v came in this order", key, numbers[max(at-2, 0):min(at+3, len(numbers))])
		}
	}
	if len(replayed) == 0 {
		t.Error("no event was replayed")
	}
}

// Breaks it catches: a request that only a running relay hears; one that is forgotten when the process ends in the
// middle; a filter that is not asked. Seen to fail with requests refused that are older than the process.
func TestRequestsWaitForARelay(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := newJudgeful(func(value []byte, try int) *sink.Reason {
		if try == 1 && (is(value, 5) || is(value, 6)) {
			return never
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 20, 20))
	b.waitDead(2)
	b.waitRecorded(18)
	mustStop(t, stop)

	id := b.pg.Query(t, "SELECT original_id FROM outbox_events_dlq WHERE payload->>'n' = '5'")
	replay := b.ask(store.RequestReplay, store.Filter{IDs: []string{id}})
	discard := b.ask(store.RequestDiscard, store.Filter{All: true})
	unknown := b.ask("dance", store.Filter{All: true})
	r, stop = b.startWith(newJudgeful(func([]byte, int) *sink.Reason { return nil }))
	b.waitRole(r, relay.RoleActive)
	for _, id := range []int64{replay, discard} {
		if got := b.waitExecuted(id); got.Done != 1 || got.Error != "" {
			t.Errorf("request: got %+v, want one done", got)
		}
	}
	if got := b.waitExecuted(unknown); !strings.Contains(got.Error, "does not support the request") {
		t.Errorf("a request of another version: got %+v, want it refused", got)
	}
	b.waitRecorded(19)
	got := b.pg.Query(t,
		"SELECT (payload->>'n') || resolved_by || note FROM outbox_events_dlq WHERE discarded_at IS NOT NULL")
	if got != "6ann@hostbecause" {
		t.Errorf("discarded: got %q", got)
	}
	mustStop(t, stop)
}

// Breaks it catches: a retry that comes at its own time only. Seen to fail with the time left as it is.
func TestRetryNowIsNow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Retry.InitialBackoff = b.c.Retry.MaxBackoff
	j := newJudgeful(func(value []byte, try int) *sink.Reason {
		if is(value, 5) && try == 1 {
			return maybeLater
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 20, 3))
	b.waitQuery("parked behind its backoff", "SELECT count(*) > 5 FROM cdc_relay_parked", "true")
	if got := b.waitExecuted(b.ask(store.RequestRetry, store.Filter{All: true})); got.Done != 1 {
		t.Errorf("request: got %+v, want the head made due", got)
	}
	b.waitRecorded(20)
	b.waitNoneHeld(r)
	mustStop(t, stop)
	j.wantInOrder(t, 20)
}

// Breaks it catches: a pause that lets events through, loses the slot, is forgotten by a restart, does not keep what
// was asked while no relay ran, or that keeps a stop waiting. Seen to fail with the pause not looked at before
// reading, and with no status sent after the first half second.
func TestPauseHoldsTheIntakeThroughARestart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Postgres.WALSenderTimeout = config.Duration(2 * time.Second) // less than the pause lasts
	b.c.Postgres.StatusInterval = config.Duration(time.Second / 2)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 50, 3))
	b.waitRecorded(50)
	b.waitExecuted(b.ask(store.RequestPause, store.Filter{}))
	b.waitReason(r, "paused by ann@host since ")
	if st := r.Status(); st.Ready || st.Role != relay.RoleActive || st.Paused == nil || st.Paused.By != "ann@host" ||
		st.Paused.Note != "because" {
		t.Errorf("paused: got ready %t, role %s, %+v", st.Ready, st.Role, st.Paused)
	}
	b.pg.Exec(t, many(51, 50, 3))
	at := b.here()
	slot := "SELECT active_pid FROM pg_replication_slots WHERE slot_name = '" + b.c.Postgres.Slot + "'"
	walsender := b.pg.Query(t, slot)
	// Longer than the server waits for a silent stream: the slot is kept only if status goes on.
	b.waitQuery("three seconds are over",
		"SELECT now() > (SELECT finished_at + interval '3 seconds' FROM cdc_relay_request)", "true")
	if now := b.pg.Query(t, slot); now == "" || now != walsender {
		t.Errorf("paused: the slot was held by the session of %s, and is by %q; want it kept", walsender, now)
	}
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "50" {
		t.Errorf("paused: got %s journaled, want 50", n)
	}
	b.wantUnconfirmed(at)
	for what, least := range map[string]float64{"outbox_oldest_pending_age_seconds": 1, "cdc_replication_lag_seconds": 1,
		"outbox_backlog_gauge": 1} {
		harness.Eventually(t, time.Minute, what+" tells of what waits in the WAL", func(context.Context) string {
			if got := metric(t, r, what); got < least {
				return fmt.Sprintf("got %v, want at least %v", got, least)
			}
			return ""
		})
	}
	begun := time.Now()
	mustStop(t, stop)
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("a stop while paused took %v", took)
	}

	r, stop = b.start()
	b.waitReason(r, "paused by ann@host since ")
	b.waitRole(r, relay.RoleActive)
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "50" {
		t.Errorf("journaled after a restart while paused: got %s, want 50", n)
	}
	b.waitExecuted(b.ask(store.RequestResume, store.Filter{}))
	b.waitRecorded(100)
	b.waitReady(r)
	if st := r.Status(); st.Paused != nil {
		t.Errorf("resumed: got %+v", st.Paused)
	}
	mustStop(t, stop)

	b.ask(store.RequestPause, store.Filter{})
	b.pg.Exec(t, many(101, 50, 3))
	r, stop = b.start()
	b.waitReason(r, "paused by ann@host since ")
	b.waitRole(r, relay.RoleActive)
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); n != "100" {
		t.Errorf("journaled by a relay that was paused before it started: got %s, want 100", n)
	}
	b.ask(store.RequestResume, store.Filter{})
	b.waitRecorded(150)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 150)
}
