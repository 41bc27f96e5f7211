package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/effects"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One history with everything that a consumer can have done with published events. Breaks it catches: an event without
// an effect that no one counts, one that is only on its way called missing, an exit code that does not follow. Seen to
// fail with offsets that are not compared, with a row that is unknown called done, and with the exit code left at 0.
func TestVerifyFindsPublishedEventsWithoutAnEffect(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for _, ids := range []string{"uuid", "bigint"} {
		t.Run(ids, func(t *testing.T) { verifyEffects(t, ids) })
	}
}

func verifyEffects(t *testing.T, ids string) {
	t.Helper()
	s, billing := newServices(t, orderTopic), harness.Postgres(t)
	if ids == "bigint" {
		s.pg.Exec(t, `CREATE TABLE outbox_events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
			aggregate_type text, aggregate_id text, event_type text, payload jsonb, created_at timestamptz DEFAULT now(),
			published_at timestamptz)`)
	}
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, append(slices.Clone(s.environ), "CDC_RELAY_POSTGRES_URL="+billing.URL), "init", "--inbox", "inbox").
		want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', i % 5, 'x', '{}' FROM generate_series(1, 20) i`)
	settled(t, s.pg, "20")
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
	s.pg.Exec(t, "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('order', '1', 'late')")
	published := strings.Fields(s.pg.Query(t, `SELECT string_agg(id::text, ' ' ORDER BY created_at, id) FROM outbox_events
		WHERE event_type = 'x'`))
	decide(t, s.pg, billing, published)

	cdcRelay(t, s.environ, "verify", "--consumer=billing", "--inbox-schema=inbox").want(t, exitFailed, nil,
		[]string{"cdc-relay init --inbox"})
	cdcRelay(t, s.environ, "verify", "--consumer=nobody", "--inbox-schema=inbox", "--inbox-url="+billing.URL).want(t,
		exitFailed, nil, []string{`no consumer "nobody"`, "inbox list"})
	audit := func(args ...string) (v effects.Verdict, code int) {
		t.Helper()
		o := cdcRelay(t, s.environ, append([]string{"verify", "--json", "--consumer=billing", "--inbox-schema=inbox",
			"--inbox-url=" + billing.URL}, args...)...)
		if err := json.Unmarshal([]byte(o.out), &v); err != nil {
			t.Fatalf("%v in the output %q; errors: %s", err, o.out, o.errors)
		}
		return v, o.code
	}
	want := effects.Verdict{Consumer: "billing", Published: 20, Done: 10, Parked: 1, Dead: 1, Discarded: 1, Waiting: 7,
		Held: 1, IDs: []string{}, Rewind: []string{}}
	if v, code := audit(); code != exitDone || fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("before the consumer has come to all: got exit code %d and %+v, want 0 and %+v", code, v, want)
	}
	billing.Exec(t, "UPDATE inbox.inbox_offset SET next_offset = 1000")
	want.Waiting, want.Missing = 0, 7
	v, code := audit()
	slices.Sort(v.IDs)
	lost := slices.Sorted(slices.Values(published[13:]))
	for _, statement := range v.Rewind {
		if got := billing.Query(t, strings.TrimSuffix(statement, ";")); got != "true" {
			t.Errorf("%s: got %s, want true", statement, got)
		}
	}
	if _, code := audit(); code != exitDone {
		t.Errorf("after %q: got exit code %d, want 0: they wait", v.Rewind, code)
	}
	billing.Exec(t, "UPDATE inbox.inbox_offset SET next_offset = 1000")
	want.Rewind = v.Rewind
	if want.IDs = lost; code != exitFailed || fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("when it has passed them: got exit code %d and %+v, want 1 and %+v", code, v, want)
	}
	want.Missing, want.Forgotten, want.IDs, want.Rewind = 0, 7, []string{}, []string{}
	if v, code := audit("--inbox-keep=0s"); code != exitDone || fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("when ids are not kept: got exit code %d and %+v, want 0 and %+v", code, v, want)
	}
	billing.Exec(t, "UPDATE inbox.inbox_offset SET topic = 'other'")
	want.Forgotten, want.Elsewhere = 0, 7
	if v, code := audit(); code != exitDone || fmt.Sprint(v) != fmt.Sprint(want) {
		t.Errorf("when it reads another topic: got exit code %d and %+v, want 0 and %+v", code, v, want)
	}
	cdcRelay(t, s.environ, "verify", "--consumer=shipping", "--inbox-schema=inbox", "--inbox-url="+billing.URL).
		want(t, exitFailed, nil, []string{"read the inbox of shipping"})
	cdcRelay(t, s.environ, "verify", "--consumer=billing").want(t, exitFailed, nil, []string{"init"})
	cdcRelay(t, append(slices.Clone(s.environ), "CDC_RELAY_OUTBOX_COLUMNS_CREATED_AT="), "verify", "--consumer=billing",
		"--since=1h").want(t, exitUsage, nil, []string{"need outbox.columns.created_at"})
}

// decide does what a consumer would: ten events are done, the next three parked, dead and discarded. Its offset is 0.
func decide(t *testing.T, outbox, billing *harness.PG, published []string) {
	t.Helper()
	source := outbox.Query(t,
		"SELECT (pg_control_system()).system_identifier || '/' || (SELECT source FROM cdc_relay_source)")
	for n, id := range published[:13] {
		named := fmt.Sprintf("source_name => '%s'", source)
		if n < 10 {
			billing.Query(t, fmt.Sprintf("SELECT inbox.inbox_claim('billing', '%s', %s)", id, named))
			continue
		}
		billing.Query(t, fmt.Sprintf(`SELECT inbox.inbox_park('billing', '%s', topic => 'outbox.event.order',
			partition => 0, "offset" => 1, key => 'k', value => '{}', %s)`, id, named))
		switch n {
		case 11:
			billing.Query(t, fmt.Sprintf("SELECT inbox.inbox_failed('billing', '%s', 'no', %s)", id, named))
		case 12:
			billing.Query(t, fmt.Sprintf("SELECT inbox.inbox_discard('billing', '%s', 'alice', %s)", id, named))
		}
	}
	partitions := outbox.Query(t, "SELECT string_agg(DISTINCT partition::text, ',') FROM cdc_relay_journal")
	billing.Exec(t, fmt.Sprintf(`INSERT INTO inbox.inbox_offset (consumer, topic, partition, topic_id, next_offset)
		SELECT 1, 'outbox.event.order', p, '', 0 FROM unnest('{%s}'::integer[]) p`, partitions))
}
