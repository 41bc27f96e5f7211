package bench

import (
	"slices"
	"testing"
	"time"
)

// refusedType is the aggregate type of events that the broker refuses: their topic takes no record as old as they are.
const refusedType = "refused"

// parkingSettings let a refused event wait longer than a run lasts.
var parkingSettings = []any{"message.timestamp", "created_at", "retry.initial_backoff", "2h", "retry.max_backoff", "2h"}

func (r *run) refusingTopic() string { return r.relay.Settings.Topic(refusedType) }

// park lets the broker refuse an event of each of so many keys, and waits until the relay has stored all of them aside.
func (r *run) park(keys int) {
	r.t.Helper()
	r.kafka.CreateTopic(r.t, r.refusingTopic(), r.partitions,
		map[string]string{"message.timestamp.before.max.ms": "3600000"})
	r.exec(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, created_at)
		SELECT '`+refusedType+
		`', 'refused-' || i, 'OrderPlaced', jsonb_build_object('order', i), now() - interval '1 day' FROM generate_series(1, $1::int) i`, keys)
	r.poll(50*time.Millisecond, "every refused event is parked", func() bool { return r.parked() == keys })
}

// parked counts the parked keys that wait for their time.
func (r *run) parked() (keys int) {
	r.t.Helper()
	r.one("SELECT count(*) FROM cdc_relay_parked WHERE error_class = 'transient' AND retry_count = 1 AND next_retry_at "+
		"> now()", &keys)
	return keys
}

// drainBeside drains once with keys parked, or a long journal, and once without, all else alike. Who begins
// changes from turn to turn.
func (st *stage) drainBeside(t *testing.T, v variant, d drain, turn int) []sample {
	free := *st
	free.parkedKeys, free.journal = 0, 0
	names := []string{"parked", "none parked"}
	if st.journal > 0 {
		names = []string{"long journal", "no journal"}
	}
	stages := map[string]*stage{names[0]: st, names[1]: &free}
	by := make(map[string][]sample)
	for n := range names {
		name := names[(n+turn)%len(names)]
		if !t.Run(name, func(t *testing.T) { by[name] = stages[name].drainOnce(t, v, d, turn) }) {
			t.FailNow()
		}
	}
	with, without := by[names[0]], by[names[1]]
	for n, s := range without {
		if slices.Contains([]string{relayRate, journaledRate, walJournaled}, s.name) {
			with = append(with, sample{names[1] + ": " + s.name, s.value, mark{}},
				sample{"  " + names[0] + " / " + names[1], with[n].value / s.value, mark{}})
		}
	}
	return with
}
