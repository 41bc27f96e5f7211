package relay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// plainTable makes the bed's outbox one of text and json, which take what jsonb does not.
func (b *bed) plainTable(payloadType string) {
	b.t.Helper()
	b.pg.Exec(b.t, `DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE outbox_events (id text PRIMARY KEY,
 aggregate_type text, aggregate_id text, event_type text, payload `+payloadType+`, headers json,
 created_at timestamptz DEFAULT now(), published_at timestamptz)`)
}

// row is the statement that inserts an event of key k; payload and headers are SQL.
func row(id, key, payload, headers string) string {
	return fmt.Sprintf(`INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, headers)
 VALUES (%s, 'order', %s, 'made', %s, %s);`, id, key, payload, headers)
}

// One outbox in databases of four encodings. Breaks it catches: a reason, note or name that the relay writes and the
// database cannot hold, with which an event is never settled and nothing confirmed; text that ends the stream. Seen to
// fail in LATIN1 (22P05 at each attempt) with texts written as they are, and in SQL_ASCII (22021) with the
// stream, and with the pool, asked for UTF-8.
func TestEventsAreSettledInEveryEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		encoding, key string // the key is SQL
		want          string // its bytes in the topic
	}{
		{"UTF8", `U&'M\00fcller\4e86'`, "Müller了"}, {"LATIN1", `U&'M\00fcller'`, "Müller"},
		{"EUC_JP", `U&'\4e86\89e3'`, "了解"}, {"SQL_ASCII", `E'M\xfcller'`, "M\xfcller"},
	} {
		t.Run(c.encoding, func(t *testing.T) {
			t.Parallel()
			b := newBedOn(t, harness.PostgresIn(t, c.encoding))
			b.plainTable("json")
			r, stop := b.start()
			b.waitRole(r, relay.RoleActive)
			last := row("'last'", "'z'", `'{"n": 9}'`, "NULL")
			b.pg.Exec(t, row("'a1'", c.key, `'{"n": 1}'`, "NULL")+
				row("'bad'", c.key, `'{"\u0141": 2}'`, `'{"\u0141 \u4e86": 5}'`)+
				row("'a3'", c.key, `'{"n": 3}'`, `'{"ok": "\u0141\u00f3d\u017a"}'`)+last)
			b.waitDead(1)
			b.waitRecorded(3)
			b.pg.WaitConfirmed(t, b.c.Postgres.Slot, 10*time.Second)
			if got := b.values("outbox.event.order")[c.want]; !slices.Equal(got, []string{`{"n": 1}`, `{"n": 3}`}) {
				t.Errorf("values of the key: got %q, want those of a1 and a3", got)
			}
			if code := b.pg.Query(t, "SELECT error_code FROM outbox_events_dlq WHERE original_id = 'bad'"); code !=
				"INVALID_HEADERS" {
				t.Errorf("dead letter: got %s, want INVALID_HEADERS", code)
			}
			// What people write about it, in characters that no row has.
			s := b.asker()
			id, err := s.AddRequest(t.Context(), store.RequestDiscard, store.Filter{All: true}, "Łukasz", "не нужно…")
			if err != nil {
				t.Fatal(err)
			}
			b.waitExecuted(id)
			mustStop(t, stop)
		})
	}
}

// Bytes of any encoding, beside each other. Breaks it catches: a byte that ends the stream at its transaction forever,
// an event that is changed or not recorded. Seen to fail with the stream, and with the pool, asked for UTF-8.
func TestBytesOfAnyEncodingArePublishedAsTheyAre(t *testing.T) {
	t.Parallel()
	b := newBedOn(t, harness.PostgresIn(t, "SQL_ASCII"))
	b.plainTable("text")
	b.pg.Exec(t, "ALTER TABLE outbox_events ALTER headers TYPE text")
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	const key = `E'M\xfcller'`
	b.pg.Exec(t, row("'a1'", key, `E'na\xefve \xff'`, "NULL")+row("'a2'", key, "'x'", `E'{"n":"\xe9"}'`)+
		row("'a3'", key, "'last'", "NULL")+row(`E'a4\xfc'`, key, "'id'", "NULL")+row("'a5'", key, "'end'", "NULL"))
	b.waitDead(1)
	b.waitRecorded(4)
	want := []string{"na\xefve \xff", "last", "id", "end"}
	if got := b.values("outbox.event.order")["M\xfcller"]; !slices.Equal(got, want) {
		t.Errorf("values: got %q, want %q", got, want)
	}
	if code := b.pg.Query(t, "SELECT error_code FROM outbox_events_dlq"); code != "INVALID_ENCODING" {
		t.Errorf("dead letter: got %s, want INVALID_ENCODING", code)
	}
	b.waitQuery("the id in the journal",
		`SELECT count(*) FROM cdc_relay_journal WHERE event_id = E'a4\xfc'`, "1")
	b.waitQuery("rows marked", `SELECT count(*) FROM outbox_events WHERE published_at IS NOT NULL`, "4")
	// After a crash it is read from the table, too.
	b.pg.Exec(t, row("'b1'", key, `E'\xfe'`, "NULL"))
	b.waitRecorded(5)
	mustStop(t, stop)
}

// Breaks it catches: an endless series of sessions that end at the same row, without a halt. Written, but not run, to
// fail with the server's error taken for one of the connection.
func TestTextThatUTF8LacksHaltsWithTheWayOut(t *testing.T) {
	t.Parallel()
	b := newBedOn(t, harness.PostgresIn(t, "EUC_JP"))
	b.plainTable("text")
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, row("'a1'", "'k'", "'good'", "NULL")+row("'a2'", "'k'", `E'\xa9\xa1'`, "NULL")+
		row("'a3'", "'k'", "'next'", "NULL"))
	b.waitHalt(r, "invalid_encoding", "EUC_JP", "0xa9 0xa1", "slot advance", "associated LSN")
	mustStop(t, stop)
}
