package store_test

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: an id type whose encoding, comparison or collation differs between the outbox and the relay's tables.
func TestEveryIDTypeGoesThroughEveryCall(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE DOMAIN event_id AS uuid`)
	for _, row := range []struct {
		name, ddl, journal string
		id                 func(i int) string
	}{
		{"uuid", "id uuid PRIMARY KEY", "uuid", uuid},
		{"domain over uuid", "id event_id PRIMARY KEY", "uuid", uuid},
		{"text", "id text PRIMARY KEY", "text", func(i int) string { return fmt.Sprintf(`Ä "q\\' {%d},`, i) }},
		{"varchar with a collation", `id varchar(40) COLLATE "POSIX" PRIMARY KEY`, "text", func(i int) string {
			return fmt.Sprintf("ev-%d", i)
		}},
		{"smallint", "id smallint PRIMARY KEY", "bigint", func(i int) string { return fmt.Sprint(-i) }},
		{"integer", "id integer PRIMARY KEY", "bigint", func(i int) string { return fmt.Sprint(2147483640 + i) }},
		{"bigint", "id bigint PRIMARY KEY", "bigint", func(i int) string { return fmt.Sprint(-9223372036854775807 + i) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			pg.Exec(t, `DROP SCHEMA IF EXISTS relay CASCADE; DROP TABLE IF EXISTS outbox_events CASCADE; DROP PUBLICATION IF
 EXISTS test; CREATE TABLE outbox_events (n serial,
 `+row.ddl+`, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, created_at timestamptz DEFAULT clock_timestamp(), published_at timestamptz)`)
			c := usual(t, pg)
			c.OrderBy, c.Schema = "n", "relay"
			s := owner(t, pg, c)
			for i := 1; i <= 3; i++ {
				pg.Exec(t, `INSERT INTO outbox_events (id, aggregate_type) VALUES ('`+strings.ReplaceAll(row.id(i), "'", "''")+
					`', 'a')`)
			}
			o, err := s.Outbox(t.Context())
			if err != nil || o.IDType != row.journal {
				t.Fatalf("journal's type: got %q, %v, want %q", o.IDType, err, row.journal)
			}
			everyCall(t, s, row.id)
			// 1 is pruned, because its row says that it is published; 2 is dead; 3 is in the baseline.
			if got := pg.Query(t,
				`SELECT string_agg(status, ' ' ORDER BY n) FROM relay.outbox_events_status v
 JOIN outbox_events o USING (id)`); got != "published failed published" {
				t.Errorf("status: got %s, want published failed published", got)
			}
		})
	}
}

// Break caught: ids of type text compared by the relay's collation, which the outbox's own index does not have: each
// page of a catch-up then reads more than the one before, and the whole outbox is read for a few dead letters, until
// a statement's time is not enough. Seen to fail so, with either statement.
func TestTextIDsAreFoundByTheIndexOfTheOutbox(t *testing.T) {
	for _, id := range []string{"text", `varchar(40) COLLATE "POSIX"`} {
		t.Run(id, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, `CREATE TABLE outbox_events (id `+id+
				` PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
 created_at timestamptz DEFAULT clock_timestamp(), published_at timestamptz);
INSERT INTO outbox_events (id) SELECT 'event ' || i FROM generate_series(1, 20000) i; ANALYZE outbox_events`)
			s := owner(t, pg, usual(t, pg))
			listRows(t, s)
			pg.Exec(t, "ANALYZE cdc_relay_catch_up")
			explains := map[string]func(context.Context) (string, error){
				"a page of a catch-up": s.ExplainCatchUp, "old dead letters": s.ExplainPruneDead,
			}
			for what, explain := range explains {
				plan, err := explain(t.Context())
				must(t, what, err)
				if !strings.Contains(plan, "using outbox_events_pkey") || strings.Contains(plan, "Seq Scan on outbox_events o") {
					t.Errorf("%s: got the plan\n%s\nwant the outbox's rows by its index", what, plan)
				}
			}
		})
	}
}

// Break caught: a partitioned outbox whose leaves, publication or marks are forgotten.
func TestPartitionedOutboxGoesThroughEveryCall(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id uuid, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb,
 created_at timestamptz DEFAULT '2026-01-15', published_at timestamptz, PRIMARY KEY (id, created_at))
 PARTITION BY RANGE (created_at);
CREATE TABLE jan PARTITION OF outbox_events FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE feb PARTITION OF outbox_events FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')`)
	s := owner(t, pg, usual(t, pg))
	o, err := s.Outbox(t.Context())
	if err != nil || len(o.OIDs) != 3 || !o.Partitioned {
		t.Errorf("got %+v, %v, want 3 OIDs, partitioned", o, err)
	}
	insertEvents(t, pg, 1, 3)
	everyCall(t, s, uuid)
	if problems, err := s.CheckPublication(t.Context(), "test"); err != nil || len(problems) != 0 {
		t.Errorf("publication: got %v, %v, want no problem", problems, err)
	}
	pg.Exec(t, `ALTER PUBLICATION test SET (publish_via_partition_root = false)`)
	problems, err := s.CheckPublication(t.Context(), "test")
	if err != nil || len(problems) == 0 || !strings.Contains(problems[0].Repair, "publish_via_partition_root") {
		t.Errorf("publication of the leaves: got %v, %v, want the option that repairs it", problems, err)
	}
}

// otherSettings are a database's defaults that print each value in another form.
var otherSettings = []string{
	"timezone = 'Asia/Kolkata'", "datestyle = 'SQL, DMY'", "bytea_output = 'escape'", "extra_float_digits = -3",
	"intervalstyle = 'iso_8601'", "quote_all_identifiers = on",
}

// roleSettings are a role's own, with which values, and the names of types, are printed, read and compared in another
// way.
var roleSettings = append(slices.Clone(otherSettings), "standard_conforming_strings = off", "array_nulls = off",
	"transform_null_equals = on",
	"default_transaction_isolation = 'serializable'", "search_path = odd, public, pg_catalog")

// oddSchema is in front of the catalog in the search_path of roleSettings, with types and functions of the same names.
const oddSchema = `CREATE SCHEMA odd; CREATE DOMAIN odd.uuid AS text; CREATE DOMAIN odd.jsonb AS text;
CREATE DOMAIN odd.timestamptz AS text;
CREATE FUNCTION odd.md5(bytea) RETURNS text LANGUAGE sql AS $$ SELECT 'odd' $$`

// Breaks caught: a call that reads a time as the server prints it, or takes a type of the role's for the catalog's.
// Seen to fail with the times of NextRequest read as text, and with search_path left to the role where a call goes by
// wire parameters.
func TestEveryCallWorksWhateverARoleSets(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, oddSchema)
	c := asOther(t, pg, usual(t, pg))
	u, err := url.Parse(c.URL)
	must(t, "read the URL", err)
	for _, setting := range roleSettings {
		pg.Exec(t, fmt.Sprintf("ALTER ROLE %s SET %s", u.User.Username(), setting))
	}
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 5)
	for _, row := range everyMethod(s, store.Mark) {
		must(t, row.what, row.do(t.Context()))
	}
}

// Breaks caught: drift that goes unseen, and a repair that does not repair; another publication, or another table, that
// is looked at instead. Seen to fail with each condition on the publication and on the table left out.
func TestCheckPublicationFindsEveryDriftAndItsRepairWorks(t *testing.T) {
	pg := harness.Postgres(t)
	execFile(t, pg, "decoys.sql")
	s := open(t, usual(t, pg))
	must(t, "migrate", s.Migrate(t.Context()))
	pg.Exec(t, `CREATE PUBLICATION another FOR TABLE outbox_events, visits`)
	for _, row := range []struct{ name, drift, want string }{
		{"dropped", `DROP PUBLICATION test`, "no publication"},
		{"no inserts", `ALTER PUBLICATION test SET (publish = 'update')`, "does not publish inserts"},
		{"table left out", `CREATE TABLE x (i int); ALTER PUBLICATION test SET TABLE x`, "is not in it"},
		{"row filter", `ALTER PUBLICATION test
 SET TABLE outbox_events WHERE (aggregate_type = 'a'), decoy.outbox_events, visits`, "row filter"},
		{"column list", `ALTER PUBLICATION test
 SET TABLE outbox_events (id, aggregate_type, aggregate_id, event_type, created_at)`, `lacks column "payload"`},
		{"table swapped", `ALTER TABLE outbox_events RENAME TO o; CREATE TABLE outbox_events (LIKE o INCLUDING ALL)`,
			"is not in it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			pg.Exec(t, `DROP PUBLICATION IF EXISTS test`)
			if pg.Server.Version() < 15 && (row.name == "row filter" || row.name == "column list") {
				t.Skip("PostgreSQL 14 knows none")
			}
			must(t, "create the publication", s.CreatePublication(t.Context(), "test"))
			must(t, "create it again", s.CreatePublication(t.Context(), "test"))
			if problems, err := s.CheckPublication(t.Context(), "test"); err != nil || problems != nil {
				t.Fatalf("fresh publication: got %v, %v, want no problem", problems, err)
			}
			pg.Exec(t, row.drift)
			problems, err := s.CheckPublication(t.Context(), "test")
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0].What, row.want) {
				t.Fatalf("got %v, %v, want one problem: %s", problems, err, row.want)
			}
			pg.Exec(t, problems[0].Repair)
			if problems, err = s.CheckPublication(t.Context(), "test"); err != nil || problems != nil {
				t.Errorf("after the repair: got %v, %v, want no problem", problems, err)
			}
		})
	}
}

// Breaks caught: a status without the slot, or of another one, an LSN that is mixed up, a token that is not in the WAL
// when it is returned. Seen to fail with the slot's name not asked.
func TestSlotStatusAndTokensAgreeWithTheServer(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	pg.Exec(t, `SELECT pg_create_logical_replication_slot('`+harness.Unique(t, "another")+`', 'pgoutput')`)
	st, err := s.Slot(t.Context())
	if err != nil || st.Exists || st.WALEnd == 0 {
		t.Fatalf("no slot: got %+v, %v, want it not to exist, and the end of the WAL", st, err)
	}
	conn := takeOver(t, pg, c, s)
	token, err := s.EmitToken(t.Context(), "cdc-relay", "content")
	must(t, "emit a token", err)
	st, err = s.Slot(t.Context())
	must(t, "read the status", err)
	if !st.Exists || !st.Active || st.ActivePID != conn.PID() || st.Plugin != "pgoutput" || st.Database != pg.Database ||
		st.WALStatus != "reserved" || st.SafeWALSize != nil || st.Temporary || st.TwoPhase || st.InvalidationReason != "" {
		t.Errorf("got %+v, want an active, intact pgoutput slot of pid %d", st, conn.PID())
	}
	if !(st.Restart <= st.Confirmed && st.Confirmed < token && token < st.WALEnd &&
		st.RetainedBytes == int64(st.WALEnd-st.Restart)) {
		t.Errorf("got restart %v, confirmed %v, token %v, end %v, retained %d, want them in this order and their distance",
			st.Restart, st.Confirmed, token, st.WALEnd, st.RetainedBytes)
	}
}

// Break caught: a status that takes the row's word before the journal's, or does not know one of the places.
func TestStatusViewShowsWhereEachEventIs(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 6)
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), []store.Dead{dead(1)}))
	pg.Exec(t, fmt.Sprintf(`INSERT INTO cdc_relay_parked (source, event_id, topic, epoch, from_stream, position_order,
 position_index, error_class, retry_count, last_error)
SELECT source, id, 't', 1, true, 1, 0, class, 2, 'later'
 FROM cdc_relay_state, (VALUES ('%s'::uuid, 'transient'), ('%s', 'blocked')) v(id, class)`, uuid(2), uuid(3)))
	pg.Exec(t, `UPDATE outbox_events SET published_at = now() WHERE id = '`+uuid(4)+`'`)
	got := pg.Query(t, `SELECT string_agg(concat_ws(' ', right(id::text, 1), status, topic, partition, "offset",
 retry_count, last_error, error_class, published_at IS NOT NULL), ', ' ORDER BY id) FROM outbox_events_status`)
	want := "0 published outbox.event.Order 0 0 0 t, 1 failed t 1 why permanent f, 2 retrying t 2 later transient f, 3 " +
		"blocked t 2 later blocked f, 4 published 0 t, 5 pending 0 f"
	if got != want {
		t.Errorf("status:\n got %s\nwant %s", got, want)
	}
}

// Breaks caught: a column whose name has capitals that Postgres cannot find, and one that a configuration wrote as
// SQL and that it finds no more. Seen to fail with the terms as they are, and with all of them quoted.
func TestOrderByNamesColumnsAsTheCatalogShowsThem(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	pg.Exec(t, `ALTER TABLE outbox_events ADD "EventNo" int`)
	for _, order := range []string{"EventNo", "EventNo desc, id ASC", "CREATED_AT, EventNo"} {
		c.OrderBy = order
		must(t, "check outbox.order_by: "+order, open(t, c).CheckExpressions(t.Context()))
	}
}

// Break caught: a view that depends on columns that the application wants to change.
func TestApplicationCanChangeItsColumnsDespiteTheView(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, `ALTER TABLE outbox_events ALTER aggregate_id TYPE varchar(80), DROP headers,
 ALTER created_at TYPE timestamp`)
}

// Break caught: a configuration that is silently taken for another one.
func TestOpenRefusesATableThatIsNotAName(t *testing.T) {
	for _, table := range []string{"", ".", "a.", ".b", "a.b.c", `"a`, `"a"b.c`, strings.Repeat("x", 64), "a\x00"} {
		c := store.Config{URL: "postgres://localhost", Slot: "s", Table: table, Columns: outbox.Columns{ID: "id"}}
		if s, err := store.Open(t.Context(), c); err == nil {
			s.Close()
			t.Errorf("table %q: got no error", table)
		}
	}
}

// Break caught: an expression of the configuration that is wrong and is found only when the mirror runs, or that
// brings a statement of its own along. Seen to fail with each of the two places of an expression looked at alone.
func TestCheckExpressionsNamesEveryKeyThatIsWrong(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	must(t, "check the defaults", open(t, c).CheckExpressions(t.Context()))
	c.PublishedWhen, c.OrderBy, c.MarkSet = "processed -- no such column", "seq DESC, nope", "foo = 1"
	refused := store.ExpressionErrors(open(t, c).CheckExpressions(t.Context()))
	if len(refused) != 3 {
		t.Fatalf("got %v, want an error for each key", refused)
	}
	for i, want := range []struct{ key, said string }{
		{"outbox.published_when", `column "processed" does not exist`}, {"outbox.order_by", `column "nope" does not exist`},
		{"outbox.mark_set", `column "foo" of relation "outbox_events" does not exist`},
	} {
		if refused[i].Key != want.key || !strings.Contains(refused[i].Error(), want.said) ||
			!strings.Contains(refused[i].Fix, want.key) {
			t.Errorf("got %v, fix %s; want %s, %s", refused[i], refused[i].Fix, want.key, want.said)
		}
	}
	c.PublishedWhen, c.OrderBy, c.MarkSet = "published_at IS NOT NULL -- really", "seq DESC -- newest",
		"published_at = clock_timestamp() -- so"
	must(t, "check expressions with comments", open(t, c).CheckExpressions(t.Context()))

	pg.Exec(t, `CREATE TABLE other (id uuid)`)
	for _, set := range []string{
		"published_at = now();drop", "published_at = now(); DROP TABLE other", "published_at = now() WHERE true",
		"published_at = now() RETURNING 1",
		"published_at = now() WHERE true), gone AS (DELETE FROM other", "published_at = now() /*",
		"published_at = now() FROM other", "published_at = 'x'",
		"published_at = now(), published_at = now()", "o.published_at = now()", "aggregate_id = '",
	} {
		c := usual(t, pg)
		c.MarkSet = set
		if refused := store.ExpressionErrors(open(t, c).CheckExpressions(t.Context())); len(refused) != 1 ||
			refused[0].Key != "outbox.mark_set" {
			t.Errorf("mark_set %q: got %v, want it refused", set, refused)
		}
	}
	for _, when := range []string{
		"true); DROP TABLE other; SELECT (true", "true) UNION SELECT 1 FROM other WHERE (true",
		"true THEN 1 END, CASE WHEN true", "true) OR (true",
		"count(*) > 1", "published_at", "o.published_at IS NOT NULL", "true /*", "'",
	} {
		c := usual(t, pg)
		c.PublishedWhen = when
		if refused := store.ExpressionErrors(open(t, c).CheckExpressions(t.Context())); len(refused) != 1 ||
			refused[0].Key != "outbox.published_when" {
			t.Errorf("published_when %q: got %v, want it refused", when, refused)
		}
	}
}

// Break caught: a view made of an expression that no one has looked at, by a protocol that takes several statements.
// Seen to fail with Migrate that does not look at them.
func TestMigrateMakesNothingWithAWrongExpression(t *testing.T) {
	for _, table := range []string{"", `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text,
 aggregate_id text, event_type text, payload jsonb, created_at timestamptz)`} {
		pg := harness.Postgres(t)
		if table != "" {
			pg.Exec(t, table)
		}
		pg.Exec(t, `CREATE TABLE other (id uuid)`)
		before := pg.Query(t, `SELECT count(*) FROM pg_class`)
		c := usual(t, pg)
		c.PublishedWhen = "true) IS TRUE AS published FROM outbox_events) o; DROP TABLE other; --"
		err := open(t, c).Migrate(t.Context())
		if refused := store.ExpressionErrors(err); len(refused) != 1 || refused[0].Key != "outbox.published_when" {
			t.Errorf("got %v, want outbox.published_when refused", err)
		}
		if after := pg.Query(t, `SELECT count(*) FROM pg_class`); after != before {
			t.Errorf("relations: got %s, want %s: nothing is made and nothing dropped", after, before)
		}
	}
}

// Break caught: a role's own setting that makes the catalog, or a value, read otherwise: with quote_all_identifiers a
// start ended with "type \"uuid\", want one of uuid". Seen to fail with quote_all_identifiers, and with search_path,
// left out of what is pinned.
func TestShapeOfTheOutboxIsTheSameWhateverARoleSets(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	want, err := s.Outbox(t.Context())
	must(t, "read the outbox", err)
	pg.Exec(t, oddSchema)
	for _, setting := range roleSettings {
		t.Run(setting, func(t *testing.T) {
			other := asOther(t, pg, c)
			u, err := url.Parse(other.URL)
			must(t, "read the URL", err)
			pg.Exec(t, fmt.Sprintf("ALTER ROLE %s SET %s", u.User.Username(), setting))
			s := open(t, other)
			got, err := s.Outbox(t.Context())
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("the outbox: got %+v, %v; want %+v", got, err, want)
			}
			must(t, "have the expressions parsed", s.CheckExpressions(t.Context()))
			if plan, err := s.Plan(t.Context()); err != nil || len(plan) != 0 {
				t.Errorf("what is missing: got %q, %v; want nothing", plan, err)
			}
			if problems, err := s.CheckPublication(t.Context(), "none"); err != nil || len(problems) != 1 {
				t.Errorf("the publication: got %v, %v; want that there is none", problems, err)
			}
		})
	}
}
