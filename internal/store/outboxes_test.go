package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const otherSource = 77 // of a test that needs no table for it

// tenants are outboxes with the same three rows, each a source of the slot that s has.
func tenants(t *testing.T, pg *harness.PG, s *store.Store, schemas ...string) []*store.Store {
	t.Helper()
	all := make([]*store.Store, len(schemas))
	for i, schema := range schemas {
		pg.Exec(t, fmt.Sprintf(`CREATE SCHEMA %[1]s; CREATE TABLE %[1]s.outbox_events (LIKE outbox_events INCLUDING ALL);
			INSERT INTO %[1]s.outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
			SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'order', '7', '%[1]s', '{}'
			FROM generate_series(1, 3) n`, schema))
		all[i] = s.Of(schema, "outbox_events")
		o, err := all[i].Outbox(t.Context())
		must(t, "read the outbox", err)
		st, err := all[i].Register(t.Context(), "7000000000000000001", 1, o.OID, store.CatchUp)
		must(t, "register", err)
		if st.TableOID != o.OID || st.Source == 0 || st.Phase != store.CatchUp {
			t.Errorf("state of %s: got %+v, want one of its own", schema, st)
		}
	}
	return all
}

// Breaks it catches: a catch-up that lists, ends or begins again for another outbox; rows without their source; marks
// in the table of another one. Seen to fail with the slot for the key of the state.
func TestOutboxesOfASlotHaveStatesAndRowsOfTheirOwn(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	members := tenants(t, pg, s, "tenant_1", "tenant_2")
	states := func(want string) {
		t.Helper()
		if got := pg.Query(t, `SELECT string_agg(concat_ws(' ', o.table_name, phase, catch_up_ready, swept_at IS NOT NULL),
			', ' ORDER BY o.table_name) FROM cdc_relay_state t JOIN cdc_relay_source o USING (source)`); got != want {
			t.Errorf("states: got %s, want %s", got, want)
		}
	}
	one := members[0]
	n, err := one.SnapshotCatchUp(t.Context())
	if err != nil || n != 3 {
		t.Fatalf("list the rows to catch up: got %d, %v, want 3", n, err)
	}
	const rest = ", tenant_2.outbox_events catch_up f f"
	states("public.outbox_events catch_up f f, tenant_1.outbox_events catch_up t t" + rest)
	rows, err := one.CatchUpRows(t.Context(), 0, 10)
	must(t, "read the rows", err)
	st, err := one.State(t.Context())
	must(t, "read the state", err)
	for _, r := range rows {
		if e := r.Event; string(e.EventType) != "tenant_1" || e.Source != st.Source {
			t.Errorf("row: got %q of source %d, want tenant_1 of %d", e.EventType, e.Source, st.Source)
		}
	}
	var outcomes []store.Published
	for i, r := range rows {
		outcomes = append(outcomes, store.Published{Source: r.Event.Source, ID: r.Event.ID, Topic: "t", Offset: int64(i)})
	}
	must(t, "settle", s.Settle(t.Context(), outcomes, nil))
	if rows, err := one.CatchUpRows(t.Context(), 0, 10); err != nil || len(rows) != 0 {
		t.Errorf("rows to catch up when all are recorded: got %d, %v", len(rows), err)
	}
	must(t, "finish", one.FinishCatchUp(t.Context()))
	states("public.outbox_events catch_up f f, tenant_1.outbox_events stream f t" + rest)
	for _, m := range append(members, s) {
		if _, _, err := m.MirrorStep(t.Context(), 100); err != nil {
			t.Fatalf("mark: %v", err)
		}
	}
	if got := pg.Query(t, `SELECT concat_ws(' ', (SELECT count(published_at) FROM tenant_1.outbox_events),
		(SELECT count(published_at) FROM tenant_2.outbox_events))`); got != "3 0" {
		t.Errorf("marked rows of the two: got %s, want 3 0", got)
	}
	must(t, "begin again", s.BeginCatchUp(t.Context(), false))
	states("public.outbox_events catch_up f f, tenant_1.outbox_events catch_up f t" + rest)

	again := s.Of("tenant_1", "outbox_events")
	o, err := again.Outbox(t.Context())
	must(t, "read the outbox", err)
	if now, err := again.Register(t.Context(), "7000000000000000001", 1, o.OID, store.Stream); err != nil ||
		now.Source != st.Source || now.Phase != store.CatchUp {
		t.Errorf("register again: got %+v, %v, want what is there of source %d", now, err, st.Source)
	}
}

// Breaks it catches: a lane without its source, or with that of another; a lane of an outbox that is not covered. Seen
// to fail with no number.
func TestACoveringStoreKnowsTheParkedEventsOfItsOutboxes(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	members := tenants(t, pg, s, "tenant_1", "tenant_2")
	var sources []int32
	for _, m := range members {
		st, err := m.State(t.Context())
		must(t, "read the state", err)
		sources = append(sources, st.Source)
	}
	s.Cover(members)
	parkAll(t, s, []store.Parked{parkedOf(parkedAt(1, "k", 0), sources[0]), parkedOf(parkedAt(1, "k", 0), sources[1]),
		parkedOf(parkedAt(2, "k", 0), sources[1]), parkedOf(parkedAt(3, "k", 0), otherSource)})
	lanes, n, err := s.ParkedLanes(t.Context())
	if err != nil || n != 3 || len(lanes) != 2 {
		t.Fatalf("parked lanes: got %v with %d events, %v, want 2 with 3", lanes, n, err)
	}
	due, _, err := s.DueLanes(t.Context(), 10, nil)
	if err != nil || len(due) < 2 {
		t.Fatalf("due lanes: got %v, %v", due, err)
	}
	for _, list := range [][]store.Lane{lanes, due} {
		got := map[int32]bool{}
		for _, l := range list {
			got[l.Source] = true
		}
		if len(got) != 2 || !got[sources[0]] || !got[sources[1]] {
			t.Errorf("lanes: got %v, want them of the sources %v", list, sources)
		}
	}
	if n, err := s.CountParked(t.Context()); err != nil || n != 3 {
		t.Errorf("parked: got %d, %v, want 3", n, err)
	}
	ask := store.Ask{Lane: store.Lane{Source: sources[1], Topic: due[0].Topic, Key: []byte("k")}}
	portions, err := s.Portions(t.Context(), []store.Ask{ask}, 10, 1000)
	if err != nil || len(portions) != 1 || rowIDs(portions[0].Rows) != "1 2" ||
		portions[0].Rows[0].Event.Source != sources[1] {
		t.Errorf("portion of the second: got %+v, %v, want its two events", portions, err)
	}
	pg.Exec(t, "UPDATE cdc_relay_parked SET next_retry_at = 'infinity', topic = 'sick'")
	if topics, err := s.WaitingTopics(t.Context()); err != nil || len(topics) != 1 {
		t.Errorf("topics that are waited for: got %v, %v", topics, err)
	}
	if more, err := s.MakeDue(t.Context(), "sick"); err != nil || !more {
		t.Errorf("make due: got %t, %v", more, err)
	}
	if got := pg.Query(t, "SELECT count(*) FROM cdc_relay_parked WHERE next_retry_at = 'infinity'"); got != "1" {
		t.Errorf("events that still wait: got %s, want that of the source that is not covered", got)
	}
}

// Breaks it catches: names that LIKE reads otherwise than the pattern says; partitions, views and unlogged tables taken
// for outboxes; a table that a publication has by its schema taken for one that it does not have.
func TestThePatternListsTablesByTheirNames(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	pg.Exec(t, `CREATE SCHEMA tenant_1; CREATE SCHEMA "tenant%2"; CREATE SCHEMA tenantx3; CREATE SCHEMA other;
		CREATE TABLE tenant_1.outbox (id int); CREATE TABLE "tenant%2".outbox (id int) PARTITION BY RANGE (id);
		CREATE TABLE "tenant%2".outbox_p PARTITION OF "tenant%2".outbox DEFAULT; CREATE TABLE tenantx3.outbox (id int);
		CREATE TABLE other.outbox (id int); CREATE UNLOGGED TABLE tenant_1.outbox_u (id int);
		CREATE VIEW tenant_1.outbox_v AS SELECT 1 AS id;
		CREATE PUBLICATION chosen FOR TABLE tenant_1.outbox, ONLY tenantx3.outbox WITH (publish = 'insert')`)
	for _, test := range []struct{ schema, table, want string }{
		{"tenant_*", "outbox*", "tenant_1.outbox+"},
		{"tenant*", "outbox", "tenant%2.outbox- tenant_1.outbox+ tenantx3.outbox+"},
		{"tenant%*", "*", "tenant%2.outbox-"},
		{"*", "o*x", "other.outbox- tenant%2.outbox- tenant_1.outbox+ tenantx3.outbox+"},
		{"*er", "outbox", "other.outbox-"},
		{"none*", "*", ""},
	} {
		p := outbox.Pattern{Schema: test.schema, Table: test.table}
		list, err := s.Outboxes(t.Context(), p, "chosen")
		must(t, "list", err)
		var got []string
		for _, o := range list {
			if !p.Fits(o.Schema, o.Name) {
				t.Errorf("%v: lists %s.%s, which it does not fit", p, o.Schema, o.Name)
			}
			got = append(got, o.Schema+"."+o.Name+map[bool]string{true: "+", false: "-"}[o.Published])
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%v: got %s, want %s", p, got, test.want)
		}
	}
	if pg.Query(t, "SELECT current_setting('server_version_num')::int < 150000") == "true" {
		return
	}
	pg.Exec(t, `CREATE PUBLICATION by_schema FOR TABLES IN SCHEMA other WITH (publish = 'insert')`)
	list, err := s.Outboxes(t.Context(), outbox.Pattern{Schema: "*", Table: "outbox"}, "by_schema")
	must(t, "list", err)
	for _, o := range list {
		if o.Published != (o.Schema == "other") {
			t.Errorf("published by schema: got %+v", o)
		}
	}
}

// One look-up is about events of many outboxes that have one id. Breaks it catches: one taken for that of another
// outbox, or judged by when the table of another was read. Seen to fail with the first event's source for all, and with
// that of the slot for the time.
func TestRecognizeTellsOutboxesApart(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	members := tenants(t, pg, s, "tenant_1", "tenant_2", "tenant_3")
	var sources []int32
	for _, m := range members {
		st, err := m.State(t.Context())
		must(t, "read the state", err)
		sources = append(sources, st.Source)
	}
	listed := outbox.Position{Table: true, Order: 1}.RowMark(true, false)
	var journaled []store.Published
	for _, source := range sources[:2] {
		journaled = append(journaled, store.Published{Source: source, ID: []byte(uuid(1)), Topic: "t", Mark: listed})
	}
	must(t, "settle", s.Settle(t.Context(), journaled, nil))
	parked := parkedAt(1, "k", 0)
	parked.Event.Position = at(5, 0)
	parkAll(t, s, []store.Parked{parkedOf(parked, sources[2])})
	pg.Exec(t, fmt.Sprintf("UPDATE cdc_relay_state SET swept_at = now() - interval '2 hours' WHERE source = %d",
		sources[0]))

	var events []store.Sighting
	var want []store.Recognition
	for range 2 {
		for i, source := range append(sources, otherSource, 0) {
			e := sighting(t, pg, 1, at(5, 0), -time.Hour)
			e.Source = source
			events = append(events, e)
			want = append(want, []store.Recognition{store.Reused, store.Recorded, store.Recorded, store.Unrecorded,
				store.Unrecorded}[i])
		}
	}
	got, err := s.Recognize(t.Context(), events)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("recognized: got %v, %v, want %v", got, err, want)
	}
}

// Breaks it catches: an outbox that is never pruned, or one that is asked each time though it has nothing. Seen to fail
// with the newest batch looked at.
func TestACoveringStoreKnowsWhichOutboxesHaveSomethingOld(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	members := tenants(t, pg, s, "tenant_1", "tenant_2", "tenant_3")
	s.Cover(members)
	var sources []int32
	for i, m := range members {
		st, err := m.State(t.Context())
		must(t, "read the state", err)
		sources = append(sources, st.Source)
		for n := range 2 * min(i, 1) { // none for the first
			one := store.Published{Source: st.Source, ID: []byte(uuid(n)), Topic: "t"}
			must(t, "settle", s.Settle(t.Context(), []store.Published{one}, nil))
		}
	}
	pg.Exec(t, fmt.Sprintf(`UPDATE cdc_relay_journal_batch SET published_at = now() - interval '2 hours'
		WHERE batch = (SELECT min(batch) FROM cdc_relay_journal_batch WHERE source = %d)`, sources[1]))
	for _, test := range []struct {
		age  time.Duration
		want []int32
	}{{0, slices.Sorted(slices.Values(sources[1:]))}, {time.Hour, sources[1:2]}, {3 * time.Hour, nil}} {
		for what, ask := range map[string]func(context.Context, time.Duration) ([]int32, error){
			"prunable": s.Prunable, "deletable": s.Deletable} {
			got, err := ask(t.Context(), test.age)
			slices.Sort(got)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s after %v: got %v, %v, want %v", what, test.age, got, err, test.want)
			}
		}
	}
	pg.Exec(t, "UPDATE cdc_relay_journal_batch SET deleted = true")
	if got, err := s.Deletable(t.Context(), 0); err != nil || len(got) > 0 {
		t.Errorf("deletable when all is deleted: got %v, %v", got, err)
	}
}
