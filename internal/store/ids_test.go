package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: an allocation per row on the hot path. Seen to fail with a uuid that is made aside.
func TestEncodingABatchDoesNotAllocatePerRow(t *testing.T) {
	number := func(i int) string { return fmt.Sprint(i) }
	for idType, id := range map[string]func(i int) string{"uuid": uuid, "text": uuid, "bigint": number} {
		batch := published(1000, id)
		got := testing.AllocsPerRun(10, func() {
			if _, err := store.EncodeBatch(idType, batch); err != nil {
				t.Fatal(err)
			}
		})
		if got > 4 { // texts are quoted first; under the race detector the pool forgets some
			t.Errorf("allocations for 1,000 ids of type %s: got %v, want at most 4", idType, got)
		}
	}
}

// Break caught: an id that is not of its type, which would end the statement or the array that it stands in.
func TestMalformedIDsAreRefusedBeforeTheyReachSQL(t *testing.T) {
	for idType, ids := range map[string][]string{
		"uuid": {"", "x", uuid(1)[:35], uuid(1) + "0", strings.Replace(uuid(1), "-", "0", 1),
			strings.Replace(uuid(1), "7", "g", 1), "{00000000-0000-7000-8000-0000000000}"},
		"bigint": {"", "1'", "1}", "9223372036854775808", "1.0"},
		"text":   {"a\x00b"},
	} {
		for _, id := range ids {
			if _, err := store.EncodeBatch(idType, published(1, func(int) string { return id })); err == nil {
				t.Errorf("%s id %q: got no error", idType, id)
			}
		}
	}
}

// Break caught: an id that is another one in the batch's array than in its row. Seen to fail with a row that gets one
// byte more.
func TestStrangeTextIDsAreTheSameInRowsAndBatch(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, created_at timestamptz)`)
	s := registered(t, usual(t, pg))
	ids := []string{`a"b`, `c\d`, `e'f`, `''`, `\'`, `{}`, `,`, ` `, `NULL`, "Ä\n\t\r", ``, `$1`, `\\"`, `"`}
	for _, conforming := range []string{"on", "off"} {
		pg.Exec(t, fmt.Sprintf(`ALTER DATABASE %s SET standard_conforming_strings = %s; TRUNCATE cdc_relay_journal,
 cdc_relay_journal_batch`, pg.Database, conforming))
		s.Pool().Reset()
		must(t, "settle", s.Settle(t.Context(), published(len(ids), func(i int) string { return ids[i] }), nil))
		got := pg.Query(t, `SELECT ((SELECT array_agg(event_id ORDER BY event_id) FROM cdc_relay_journal) = array_agg(id
 ORDER BY id COLLATE "C"))::text || ' ' || count(*)
FROM cdc_relay_journal_batch, unnest(ids) id`)
		if want := fmt.Sprintf("true %d", len(ids)); got != want {
			t.Errorf("standard_conforming_strings %s: rows and batch agree: got %s, want %s", conforming, got, want)
		}
		found, err := s.Lookup(t.Context(), [][]byte{[]byte(ids[0]), []byte(ids[1]), []byte(`a\"b`)})
		if err != nil || fmt.Sprint(found) != "[true true false]" {
			t.Errorf("look-up: got %v, %v, want the two ids that are journaled", found, err)
		}
	}
}
