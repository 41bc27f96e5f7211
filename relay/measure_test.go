package relay

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/replication"
)

// told are the gauges of what the database knows that the relay shows now, with their values.
func told(t *testing.T, r *Relay) map[string]float64 {
	t.Helper()
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if name := f.GetName(); slices.Contains(ofTheDatabase, name) {
			values[name] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return values
}

var (
	lags = []string{"cdc_replication_lag_bytes", "cdc_replication_lag_seconds",
		"outbox_oldest_pending_age_seconds"}
	stays = []string{"outbox_audited_until_seconds", "outbox_parked_events", "outbox_parked_keys"}
	ages  = []string{"outbox_backlog_gauge", "outbox_dlq_events", "outbox_mirror_lag_events", "outbox_mirror_lag_seconds"}

	ofTheDatabase = slices.Concat(lags, ages, stays)
)

// Only the relay that holds the slot shows what the database holds. Breaks it catches: a standby, or a relay that has
// not begun, that shows zeros beside the truth of another; a halt in which the last values are not shown, or shown as
// 0; values that are still shown an hour after Postgres went away; an audit that does not age in the meantime, or that
// ages by what happened before another relay's time.
func TestOnlyTheRelayOfTheSlotTellsOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		want := func(when string, names []string, audited time.Duration) {
			t.Helper()
			got := told(t, r)
			for _, name := range ofTheDatabase {
				if _, is := got[name]; is != slices.Contains(names, name) {
					t.Errorf("%s: %s is shown: %v, want the contrary", when, name, is)
				}
			}
			if n := got["outbox_audited_until_seconds"]; n != audited.Seconds() {
				t.Errorf("%s: audited %v s ago, want %v", when, n, audited)
			}
		}
		look := func() {
			r.meter.Database.Looked(store.SlotStatus{Exists: true, Confirmed: 1000, WALEnd: 5000}, time.Now())
		}
		look()
		want("starting", nil, 0)
		r.standBy(&replication.SlotBusyError{})
		want("standing by", nil, 0)
		r.health.Halt(&halt.Error{Code: halt.Setup})
		want("halted before it has relayed", append([]string{"outbox_backlog_gauge"}, lags...), 0)

		r.health.Enter(RoleActive)
		r.meter.Database.OpenDead.Set(3)
		r.meter.Database.Mirrored(4, 90*time.Second)
		time.Sleep(time.Minute)
		look()
		want("active", ofTheDatabase, time.Minute)
		r.meter.Database.Audited(time.Now())
		time.Sleep(time.Second)
		want("active, audited", ofTheDatabase, time.Second)
		r.health.Halt(&halt.Error{Code: halt.Column})
		time.Sleep(20 * time.Minute)
		look()
		want("halted", ofTheDatabase, 20*time.Minute+time.Second)
		if got := told(t, r); got["outbox_dlq_events"] != 3 || got["outbox_mirror_lag_events"] != 4 ||
			got["outbox_mirror_lag_seconds"] != 90 ||
			got["cdc_replication_lag_bytes"] != 4000 {
			t.Errorf("halted: got %v, want what was known", got)
		}
		r.health.Trouble(meter.RestartConnection, errors.New("connection refused"), 1, time.Second)
		time.Sleep(time.Hour)
		want("Postgres away", stays, 80*time.Minute+time.Second)

		r.standBy(&replication.SlotBusyError{})
		look()
		want("standing by again", nil, 0)
		time.Sleep(time.Hour)
		r.health.Enter(RoleCatchUp)
		want("catching up", []string{"outbox_parked_events", "outbox_parked_keys"}, 0)
		r.health.Enter(RoleActive)
		time.Sleep(time.Second)
		look()
		want("active again, nothing counted yet", slices.DeleteFunc(slices.Clone(ofTheDatabase), func(name string) bool {
			return strings.HasSuffix(name, "dlq_events") || strings.Contains(name, "mirror_lag")
		}), time.Second)
	})
}

// Break it catches: a counter that begins with its first event, so that Prometheus sees no increase; a series of
// a topic that is none. Seen to fail with no topic known, and with the literals of a template taken for a topic.
func TestFixedTopicIsCountedFromTheStart(t *testing.T) {
	for template, want := range map[string]string{"orders": "orders", "outbox.event.{aggregate_type}": "", "": ""} {
		c := config.Default()
		c.Message.Topic = template
		families, err := assemble(options{config: c}).Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "topic" && f.GetName() == "outbox_published_total" {
						got += l.GetValue()
					}
				}
			}
		}
		if got != want {
			t.Errorf("message.topic %q: outbox_published_total for the topic %q, want %q", template, got, want)
		}
	}
}
