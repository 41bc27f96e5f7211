package store_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a setting that is not pinned (the database's defaults here are all different), a bytea left in hex, a
// jsonb that went through a parser, NULL and empty confused: the same event would have other bytes after a catch-up.
func TestCatchUpRowsHaveTheBytesOfTheStream(t *testing.T) {
	for _, payload := range []string{"jsonb", "json", "text", "bytea"} {
		t.Run(payload, func(t *testing.T) {
			pg := harness.Postgres(t)
			for _, setting := range otherSettings {
				pg.Exec(t, fmt.Sprintf("ALTER DATABASE %s SET %s", pg.Database, setting))
			}
			pg.Exec(t, fmt.Sprintf(
				`CREATE TABLE outbox_events (seq serial, id uuid DEFAULT gen_random_uuid() PRIMARY KEY, aggregate_type text,
 aggregate_id text, event_type text, payload %s, headers jsonb, created_at timestamptz, f float8, i interval, d date,
 b bytea, n numeric[])`, payload))
			c := usual(t, pg)
			c.Columns.Headers, c.Columns.Extra = "headers", []string{"f", "i", "d", "b", "n"}
			s := owner(t, pg, c)
			values := map[string]string{"bytea": `'\x00ff27'`}[payload]
			if values == "" {
				values = `'{"b":  1.10, "a": "é\u00e9\\"}'`
			}
			pg.Exec(t, fmt.Sprintf(
				`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers, created_at, f, i, d, b, n)
 VALUES
 ('Order', 'k', 'e', %[1]s, '{"h": "v"}', '2026-01-02 03:04:05.678+05', 0.1::float8 + 0.2, '1 year 2 days 3:04',
 '2026-02-01', '\x5c00', '{1.50,NULL}'),
 ('', '', '', NULL, NULL, NULL, 'NaN', NULL, NULL, '', '{}'), (NULL, NULL, NULL, NULL, NULL, '2026-07-01', NULL, NULL,
 NULL, NULL, NULL)`, values))
			_, err := s.SnapshotCatchUp(t.Context())
			must(t, "list the rows", err)
			rows, err := s.CatchUpRows(t.Context(), 0, 10)
			must(t, "read the rows", err)
			stream := streamed(t, pg, c.Slot, 3)
			if len(rows) != len(stream) {
				t.Fatalf("rows: got %d, want %d", len(rows), len(stream))
			}
			for i, row := range rows {
				got := fieldsOf(row.Event)
				want := stream[i][1:] // without seq
				if payload == "bytea" && want[4] != nil {
					want[4] = []byte{0, 0xff, '\''}
				}
				for k := range want {
					if !bytes.Equal(got[k], want[k]) || (got[k] == nil) != (want[k] == nil) {
						t.Errorf("row %d, field %d: got %q, want %q as in the stream", i+1, k, got[k], want[k])
					}
				}
			}
		})
	}
}

func fieldsOf(e outbox.Event) [][]byte {
	return append([][]byte{e.ID, e.AggregateType, e.AggregateID, e.EventType, e.Payload, e.Headers, e.CreatedAt},
		e.Extra...)
}

// streamed reads n inserted rows through pgoutput.
func streamed(t testing.TB, pg *harness.PG, slot string, n int) (rows [][][]byte) {
	t.Helper()
	pg.Exec(t, fmt.Sprintf(
		`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '%s'`, slot))
	conn := walsender(t, pg, slot)
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	for len(rows) < n {
		message, err := conn.ReceiveMessage(ctx)
		must(t, "receive", err)
		data, is := message.(*pgproto3.CopyData)
		if !is || data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		wal, err := pglogrepl.ParseXLogData(data.Data[1:])
		must(t, "parse", err)
		parsed, err := pglogrepl.Parse(wal.WALData)
		must(t, "parse", err)
		if insert, is := parsed.(*pglogrepl.InsertMessage); is {
			var fields [][]byte
			for _, c := range insert.Tuple.Columns {
				value := c.Data
				if c.DataType == 'n' {
					value = nil
				} else if value == nil {
					value = []byte{}
				}
				fields = append(fields, value)
			}
			rows = append(rows, fields)
		}
	}
	return rows
}

// insertRows puts n rows into the relay's own outbox, ids uuid(from) and on, seq in the order of ids.
func insertEvents(t testing.TB, pg *harness.PG, from, n int) {
	t.Helper()
	pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 'Order', 'k', 'e', '{}'
 FROM generate_series(%d, %d) i`, from, from+n-1))
}

// Breaks caught: rows that are recorded coming again, pages that overlap or leave rows out, an order other than
// order_by.
func TestCatchUpGivesEachUnrecordedRowOnceInOrder(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 20, 5) // seq 1 to 5
	insertEvents(t, pg, 0, 10) // seq 6 to 15
	pg.Exec(t, `UPDATE outbox_events SET published_at = now() WHERE seq = 2`)
	must(t, "settle", s.Settle(t.Context(), published(3, uuid), nil))
	count, err := s.CountUnrecorded(t.Context(), 5)
	if err != nil || count != 5 {
		t.Errorf("unrecorded rows with the limit 5: got %d, %v, want 5", count, err)
	}
	rows, err := s.SnapshotCatchUp(t.Context())
	if err != nil || rows != 11 {
		t.Fatalf("listed rows: got %d, %v, want 11", rows, err)
	}
	st, err := s.State(t.Context())
	must(t, "read the state", err)
	if !st.CatchUpReady {
		t.Error("CatchUpReady: got false after the snapshot, want true")
	}
	insertEvents(t, pg, 40, 1) // after the snapshot: the stream's
	pg.Exec(t, `DELETE FROM outbox_events WHERE seq = 3`)
	var got []string
	var after uint64
	for page := 0; ; page++ {
		rows, err := s.CatchUpRows(t.Context(), after, 4)
		must(t, "read a page", err)
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			got = append(got, strings.TrimLeft(string(row.Event.ID[24:]), "0"))
			after = row.Row
		}
		if page == 0 { // recorded in the meantime
			must(t, "settle", s.Settle(t.Context(), published(5, uuid), nil))
		}
	}
	want := "14 17 18 3 5 6 7 8 9" // hexadecimal; 4 was settled after the first page, which had 3
	if strings.Join(got, " ") != want {
		t.Errorf("ids: got %s, want %s", strings.Join(got, " "), want)
	}
	must(t, "finish", s.FinishCatchUp(t.Context()))
	if st, err = s.State(t.Context()); err != nil || st.Phase != store.Stream || st.CatchUpReady {
		t.Errorf("state after the end: got %+v, %v, want phase stream", st, err)
	}
	if rows, err := s.CatchUpRows(t.Context(), 0, 10); err != nil || len(rows) != 0 {
		t.Errorf("rows after the end: got %d, %v, want none", len(rows), err)
	}
}

// Breaks caught: a start after a crash late in a long list whose first page looks at all that is recorded by then in
// one statement, which ends by its time-out and begins again forever; a list that is taken for done where so many rows
// in a row are recorded, or gone. Seen to fail so.
func TestCatchUpGoesOnBehindManyRecordedRows(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 25_002)
	listRows(t, s)
	plan, err := s.ExplainCatchUp(t.Context())
	if must(t, "explain", err); !strings.Contains(plan, "row_number <= '10000'") {
		t.Errorf("a page's plan: got\n%s\nwant it to look at 10000 rows of the list at most", plan)
	}
	pg.Exec(t, `INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset")
 SELECT source, event_id, 't', 0, row_number FROM cdc_relay_catch_up WHERE row_number < 25000;
DELETE FROM outbox_events WHERE seq IN (25000, 25002)`)
	rows, err := s.CatchUpRows(t.Context(), 1, 500)
	if err != nil || len(rows) != 1 || rows[0].Row != 25_001 {
		t.Fatalf("after 24,999 rows that are recorded: got %d rows, %v; want the one with number 25001", len(rows), err)
	}
	if rows, err = s.CatchUpRows(t.Context(), 25_001, 500); err != nil || len(rows) != 0 {
		t.Errorf("at the end: got %d rows, %v; want none", len(rows), err)
	}
}

// Break caught: a page bounded by rows only, which is as large as the events are.
func TestCatchUpPageIsBoundedByBytes(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, event_type, payload)
 SELECT 'a', 'e', to_jsonb(repeat('x', 1 << 20)) FROM generate_series(1, 20)`)
	_, err := s.SnapshotCatchUp(t.Context())
	must(t, "list the rows", err)
	total, after := 0, uint64(0)
	for {
		rows, err := s.CatchUpRows(t.Context(), after, 1000)
		must(t, "read a page", err)
		if len(rows) == 0 {
			break
		}
		if len(rows) > 8 {
			t.Fatalf("page of rows of 1 MiB: got %d rows, want at most 8", len(rows))
		}
		total += len(rows)
		after = rows[len(rows)-1].Row
	}
	if total != 20 {
		t.Errorf("rows of all pages: got %d, want 20", total)
	}
}

// Breaks caught: a baseline that hides a row in flight, or one that grows at the next start.
func TestBaselineCoversExactlyTheRowsThatAreThere(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	insertEvents(t, pg, 0, 2500)
	flying := pg.Connect(t)
	exec(t, flying,
		`BEGIN; INSERT INTO outbox_events (id, aggregate_type, event_type)
 VALUES ('00000000-0000-0000-0000-000000000000', 'a', 'e')`)
	rows, err := s.SetBaseline(t.Context())
	if err != nil || rows != 2500 {
		t.Fatalf("baseline: got %d, %v, want 2500 rows", rows, err)
	}
	exec(t, flying, "COMMIT")
	if rows, err = s.SetBaseline(t.Context()); err != nil || rows != 0 {
		t.Errorf("second call: got %d, %v, want 0 rows", rows, err)
	}
	count, err := s.CountUnrecorded(t.Context(), 0)
	if err != nil || count != 1 {
		t.Errorf("unrecorded: got %d, %v, want the one row that was in flight", count, err)
	}
	if got := pg.Query(t,
		`SELECT count(*) || ' ' || max(size) || ' ' || sum(cardinality(ids)) || ' ' || bool_and(mirrored)
 FROM cdc_relay_journal_batch`); got != "3 1000 2500 true" {
		t.Errorf("batches, largest, ids, mirrored: got %s, want 3 1000 2500 true", got)
	}
}

// Breaks caught: a barrier that does not see a prepared transaction or another database, or does not name what it waits
// for.
func TestBarrierWaitsForEveryOlderTransactionAndNamesIt(t *testing.T) {
	pg, other := harness.Postgres(t), harness.Postgres(t)
	s := open(t, usual(t, pg))
	session := other.Connect(t)
	exec(t, session, "SET application_name = 'a slow job'; BEGIN; SELECT pg_current_xact_id()")
	preparing := pg.Connect(t)
	exec(t, preparing, "CREATE TABLE x (i int); BEGIN; INSERT INTO x VALUES (1); PREPARE TRANSACTION 'two phases'")
	blockers, err := s.Barrier(t.Context(), 50*time.Millisecond)
	must(t, "barrier", err)
	var names []string
	for _, b := range blockers {
		names = append(names, b.Prepared+b.Application)
	}
	if got, want := strings.Join(names, ","), "a slow job,two phases"; got != want {
		t.Errorf("blockers: got %s, want %s", got, want)
	}
	if text := fmt.Sprint(store.ErrBarrier(blockers)); !strings.Contains(text,
		fmt.Sprintf("pg_terminate_backend(%d)", session.PgConn().PID())) || !strings.Contains(text, "ROLLBACK PREPARED") {
		t.Errorf("the barrier's error: got %s, want what ends each blocker", text)
	}
	done := make(chan error, 1)
	go func() {
		blockers, err := s.Barrier(t.Context(), waitLong)
		if err == nil && blockers != nil {
			err = store.ErrBarrier(blockers)
		}
		done <- err
	}()
	exec(t, session, "COMMIT")
	exec(t, preparing, "ROLLBACK PREPARED 'two phases'")
	must(t, "barrier after the ends", <-done)
}

// A slot is lost while events are parked. Breaks caught: parked events that stay in front of a row that comes again and
// is older (seen to fail so), that change places among themselves, or that go to the front because their row is gone; a
// dead letter that would be replayed in front of what is older.
func TestCatchUpGivesParkedEventsTheirPlaces(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 1, 6) // seq as the id
	parkAll(t, s, []store.Parked{parkedAt(2, "k", 0), parkedAt(5, "k", store.NotDue), parkedAt(4, "k", store.NotDue),
		parkedAt(8, "k", store.NotDue), parkedAt(9, "", 0)})
	died := dead(3)
	died.Event.Position, died.Topic, died.Key = outbox.Position{Epoch: 1, Order: 3}, "t", []byte("k")
	must(t, "bury", s.Settle(t.Context(), nil, []store.Dead{died}))
	// 8 has no row, and stood behind 5; 4 came in front of 5 by its position, and 6 behind both.
	n, err := s.SnapshotCatchUp(t.Context())
	must(t, "list the rows", err)
	list, err := s.CatchUpRows(t.Context(), 0, 10)
	must(t, "read the rows", err)
	var ids []string
	for _, r := range list {
		ids = append(ids, fmt.Sprintf("%d:%s", r.Row, strings.TrimLeft(string(r.Event.ID[len(r.Event.ID)-4:]), "0")))
	}
	if got, want := strings.Join(ids, " "), "2:1 8:6"; n != 2 || got != want {
		t.Errorf("the list: got %d rows, %s; want 2, %s", n, got, want)
	}
	for _, r := range list {
		e := r.Event
		e.Position = outbox.Position{Epoch: 1, Table: true, Order: r.Row}
		parkAll(t, s,
			[]store.Parked{{Event: &e, Topic: "t", Key: []byte("k"), Class: outbox.Transient, RetryIn: store.NotDue}})
	}
	rows, err := laneRows(t, s, 10)
	must(t, "read the lane", err)
	if got, want := rowIDs(rows), "1 2 4 5 8 6"; got != want {
		t.Errorf("queue: got %q, want %q", got, want)
	}
	if got := pg.Query(t,
		`SELECT epoch || ' ' || from_stream || ' ' || position_order FROM outbox_events_dlq`); got != "1 false 4" {
		t.Errorf("place of the dead letter: got %s, want that between 2 and 4", got)
	}
}

// Break caught: a dead letter whose row is not listed, so that its place is in front of what comes before it. Seen to
// fail with the rows of open dead letters left out of the list.
func TestCatchUpGivesADeadLetterThePlaceOfItsRow(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 1, 3)
	bury(t, s, deadAt(2, "k"))
	listRows(t, s)
	if got := pg.Query(t, `SELECT position_order FROM outbox_events_dlq`); got != "2" {
		t.Errorf("place of the dead letter: got %s, want 2, behind the row before it", got)
	}
}

// Breaks caught: a list of rows that is taken for that of a slot that was made after it (seen to fail with the slot's
// position not looked at), or is void though the slot is the same (seen to fail with the epoch of any slot read); a
// catch-up that ends though its list is void (seen to fail without the condition).
func TestListOfRowsIsOfOneSlot(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	pg.Exec(t, `INSERT INTO cdc_relay_epoch (slot, epoch, taken_lsn) VALUES ('neighbour', 1, '0/1')`)
	conn := takeOver(t, pg, c, s)
	listRows(t, s)
	must(t, "leave the slot", conn.Close(t.Context()))
	conn = takeOver(t, pg, c, s)
	if st, err := s.State(t.Context()); err != nil || !st.CatchUpReady {
		t.Errorf("with the same slot: got %+v, %v, want the list", st, err)
	}
	loseSlot(t, pg, c, conn)
	pg.Exec(t, `SELECT pg_logical_emit_message(true, 'test', 'what came in between')`)
	takeOver(t, pg, c, s)
	if st, err := s.State(t.Context()); err != nil || st.CatchUpReady || st.Phase != store.CatchUp {
		t.Errorf("with another slot: got %+v, %v, want no list", st, err)
	}
	if err := s.FinishCatchUp(t.Context()); err == nil {
		t.Error("the catch-up ended without a list")
	}
}
