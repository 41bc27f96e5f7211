package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// insert is the statement that writes one event; payload and headers are JSON texts, "" is SQL NULL.
func insert(aggregateType, aggregateID, payload, headers string) string {
	literal := func(s string) string {
		if s == "" {
			return "NULL"
		}
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	}
	return fmt.Sprintf("INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES "+
		"('%s', %s, 'made', %s, %s);\n",
		aggregateType, literal(aggregateID), literal(payload), literal(headers))
}

// many are statements for n events "{"n": <from…>}" over the keys k0 to k<keys-1>.
func many(from, n, keys int) string {
	return fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k' || i %% %d, 'made', jsonb_build_object('n', i) FROM generate_series(%d, %d) i;`, keys, from,
		from+n-1)
}

// values returns the values in the topics, per key in order.
func (b *bed) values(topics ...string) map[string][]string {
	b.t.Helper()
	got := map[string][]string{}
	harness.Consume(b.t, b.c.Kafka.Brokers, topics, func(r *kgo.Record) {
		got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
	})
	return got
}

// wantNumbers fails unless the topic holds {"n": 1} to {"n": n}, each once, and per key in order.
func (b *bed) wantNumbers(topic string, n int) {
	b.t.Helper()
	seen := map[int]int{}
	for key, values := range b.values(topic) {
		last := 0
		for _, v := range values {
			var number int
			if _, err := fmt.Sscanf(v, `{"n": %d`, &number); err != nil {
				b.t.Fatalf("value %.60q: %v", v, err)
			}
			if number <= last {
				b.t.Errorf("key %s: %d came after %d", key, number, last)
			}
			last = number
			seen[number]++
		}
	}
	for i := 1; i <= n; i++ {
		if seen[i] != 1 {
			b.t.Errorf("event %d: published %d times, want once", i, seen[i])
		}
	}
	if len(seen) > n {
		b.t.Errorf("topic: got %d different events, want %d", len(seen), n)
	}
}

// bedPatience is for anything that comes: no test is about how soon.
const bedPatience = 2 * time.Minute

func (b *bed) waitQuery(what, sql, want string) {
	b.t.Helper()
	harness.Eventually(b.t, bedPatience, what, func(context.Context) string {
		if got := b.pg.Query(b.t, sql); got != want {
			return fmt.Sprintf("got %s, want %s", got, want)
		}
		return ""
	})
}

func (b *bed) waitRecorded(n int) {
	b.t.Helper()
	b.waitQuery("journal rows", "SELECT count(*) FROM cdc_relay_journal", fmt.Sprint(n))
}

func (b *bed) waitDead(n int) {
	b.t.Helper()
	b.waitQuery("dead letters", "SELECT count(*) FROM outbox_events_dlq", fmt.Sprint(n))
}

// waitHalt waits for a halt with the code whose reason, risk and remedy hold the texts.
func (b *bed) waitHalt(r *relay.Relay, code string, texts ...string) {
	b.t.Helper()
	var halt *relay.HaltStatus
	harness.Eventually(b.t, bedPatience, "halt "+code, func(context.Context) string {
		st := r.Status()
		if st.Halt == nil || st.Role != relay.RoleHalted || st.Halt.Code != code {
			return fmt.Sprintf("%s, halt %+v, last error %s", st.Role, st.Halt, st.LastError)
		}
		halt = st.Halt
		if st.Ready || len(st.Reasons) == 0 {
			b.t.Errorf("halted: got ready %v with reasons %q", st.Ready, st.Reasons)
		}
		return ""
	})
	said := halt.Reason + "\n" + halt.Risk + "\n" + halt.Remedy
	for _, text := range texts {
		if !strings.Contains(said, text) {
			b.t.Errorf("halt %s says\n%s\nwithout %q", code, said, text)
		}
	}
	if halt.Risk == "" || halt.Remedy == "" {
		b.t.Errorf("halt %s: got risk %q and remedy %q, want both", code, halt.Risk, halt.Remedy)
	}
}

// confirmed is the slot's position on the server.
func (b *bed) confirmed() string {
	b.t.Helper()
	return b.pg.Query(b.t,
		"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '"+b.c.Postgres.Slot+"'")
}

// wantUnconfirmed fails if the slot has moved to where the end of WAL was after the commit of what must not be
// confirmed. The commit itself is not a bound that a test can learn: others write WAL at the same time.
func (b *bed) wantUnconfirmed(after string) {
	b.t.Helper()
	if b.pg.Query(b.t, fmt.Sprintf("SELECT '%s'::pg_lsn < '%s'", b.confirmed(), after)) != "true" {
		b.t.Errorf("confirmed: got %s, want less than %s: what is not recorded would be lost", b.confirmed(), after)
	}
}

// here is the end of WAL now.
func (b *bed) here() string {
	b.t.Helper()
	return b.pg.Query(b.t, "SELECT pg_current_wal_insert_lsn()")
}

// metric is the sum of the metric's values over the series that have all the labels, given as name=value.
func metric(t testing.TB, r *relay.Relay, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]bool{}
			for _, l := range m.GetLabel() {
				have[l.GetName()+"="+l.GetValue()] = true
			}
			if !slices.ContainsFunc(labels, func(l string) bool { return !have[l] }) {
				found = true
				// Of the three one is set; the others' getters give zero.
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	if !found {
		t.Errorf("metric %s%v: there is none", name, labels)
	}
	return sum
}

// waitMetric waits until the metric is there: what is read from the database is not, at first.
func (b *bed) waitMetric(r *relay.Relay, name string) {
	b.t.Helper()
	harness.Eventually(b.t, bedPatience, name, func(context.Context) string {
		families, err := r.Registry().Gather()
		if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == name }) {
			return fmt.Sprintf("there is none, %v", err)
		}
		return ""
	})
}

// mustStop ends the relay and fails if that was not clean.
func mustStop(t testing.TB, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// mustRunOut ends the relay and fails if all that was in flight was recorded within the grace.
func mustRunOut(t testing.TB, stop func() error) {
	t.Helper()
	if err := stop(); !errors.Is(err, relay.ErrGraceOver) {
		t.Errorf("Run: got %v, want %v", err, relay.ErrGraceOver)
	}
}

func wantKeys(t testing.TB, got map[string][]string, want map[string][]string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !slices.Equal(got[key], want[key]) {
			t.Errorf("key %q: got %q, want %q", key, got[key], want[key])
		}
	}
	if len(got) != len(want) {
		t.Errorf("keys: got %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// isHalt reports whether the error is a halt with the code.
func isHalt(err error, code string) bool {
	h, ok := errors.AsType[*relay.Halt](err)
	return ok && h.Code == code
}

// waitFree waits until the server is done with the last stream: a relay that has ended does not know when.
func (b *bed) waitFree() {
	b.t.Helper()
	b.waitQuery("the slot is free",
		"SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = '"+b.c.Postgres.Slot+"'", "0")
}
