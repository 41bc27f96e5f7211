package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// watchful is a broker in memory that says what it is told to have noticed.
type watchful struct {
	*judgeful

	mu     sync.Mutex
	raised []sink.Alarm
}

func newWatchful() *watchful {
	return &watchful{judgeful: newJudgeful(func([]byte, int) *sink.Reason { return nil })}
}

func (*watchful) PossibleDuplicates() uint64 { return 0 }

func (w *watchful) Alarms() []sink.Alarm {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]sink.Alarm(nil), w.raised...)
}

func (w *watchful) raise(kind, topic string, count uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raised = append(w.raised,
		sink.Alarm{Kind: kind, Topic: topic, At: time.Now(), Text: "records are gone", Count: count})
}

func (b *bed) waitAlarms(r *relay.Relay, want int) {
	b.t.Helper()
	harness.Eventually(b.t, bedPatience, "open alarms", func(context.Context) string {
		if st := r.Status(); len(st.Alarms) != want || (st.State == "degraded") != (want > 0) || !st.Ready {
			return fmt.Sprintf("got %+v, %s, want %d", st.Alarms, st.State, want)
		}
		return ""
	})
}

// A topic loses records. Breaks it catches: a loss that no one sees after a restart; one that two topics have, where
// only the last is kept; one that a person has acknowledged and that is shown on, or comes back. Seen to fail with
// nothing stored, with one alarm of a kind kept, with what is open not read again, and with the driver's alarms stored
// at each look.
func TestAlarmsOutliveTheProcessUntilAPersonHasLooked(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	w := newWatchful()
	r, stop := b.startWith(w)
	b.waitRole(r, relay.RoleActive)
	b.waitAlarms(r, 0)
	w.raise(sink.AlarmOffsetsWentBack, "t", 12)
	w.raise(sink.AlarmOffsetsWentBack, "u", 1)
	b.waitAlarms(r, 2)
	const stored = "SELECT string_agg(topic || count, ' ' ORDER BY topic) FROM cdc_relay_alarms"
	b.waitQuery("stored alarms", stored, "t12 u1")
	w.raise(sink.AlarmOffsetsWentBack, "v", 1) // at a later look
	b.waitQuery("stored alarms", stored, "t12 u1 v1")
	mustStop(t, stop)
	if n := b.pg.Query(t, stored); n != "t12 u1 v1" {
		t.Errorf("stored alarms when the relay has ended: got %s, want t12 u1 v1", n)
	}

	r, stop = b.startWith(newWatchful())
	b.waitAlarms(r, 3)
	if n := metric(t, r, "outbox_alarms_open", "kind="+sink.AlarmOffsetsWentBack); n != 3 {
		t.Errorf("outbox_alarms_open after a restart: got %v, want 3", n)
	}
	for _, d := range r.Status().Degraded {
		if !strings.Contains(d.Text, "cdc-relay verify --repair") || !strings.Contains(d.Text, "cdc-relay alarms ack ") {
			t.Errorf("what is degraded: got %q, want the commands that repair and acknowledge", d.Text)
		}
	}
	asker := b.asker()
	if _, err := asker.AckAlarms(t.Context(), nil, true, "ann", ""); err != nil {
		t.Fatal(err)
	}
	b.waitAlarms(r, 0)
	mustStop(t, stop)
	r, stop = b.startWith(newWatchful())
	b.waitRole(r, relay.RoleActive)
	b.waitAlarms(r, 0)
	mustStop(t, stop)
}

// Break it catches: an alarm that seems to be over while its relay is halted. Seen to fail with what was read dropped
// as soon as the relay has no session, and with nothing read until it has one.
func TestAlarmsStayOpenDuringAHalt(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	w := newWatchful()
	r, stop := b.startWith(w)
	w.raise(sink.AlarmOffsetsWentBack, "t", 12)
	w.raise(sink.AlarmOffsetsWentBack, "u", 1)
	b.waitQuery("stored alarms", "SELECT count(*) FROM cdc_relay_alarms", "2")
	b.waitAlarms(r, 2)
	b.pg.Exec(t, "DROP PUBLICATION "+b.c.Postgres.Publication)
	b.pg.Exec(t, many(1, 1, 1))
	b.waitHalt(r, relay.HaltPublication)
	asker := b.asker()
	for _, open := range []int{2, 1, 0} {
		harness.Eventually(t, bedPatience, "alarms of a relay that is halted", func(context.Context) string {
			n := metric(t, r, "outbox_alarms_open", "kind="+sink.AlarmOffsetsWentBack)
			if got := len(r.Status().Alarms); got != open || n != float64(open) {
				return fmt.Sprintf("%d are told of, and the metric says %v; want %d", got, n, open)
			}
			return ""
		})
		for _, a := range r.Status().Alarms[:min(open, 1)] {
			if _, err := asker.AckAlarms(t.Context(), []int64{a.ID}, false, "ann", ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustStop(t, stop)
}
