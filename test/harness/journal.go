package harness

import (
	"cmp"
	"fmt"
	"sync"
	"testing"
)

// Ids of event n, as SQL: of version 7, in the order of time, and of version 4, scattered over an index.
const (
	OrderedID = `(lpad(to_hex(1790000000000 + n / 5), 12, '0') || '7' || substr(md5(n::text), 1, 3) || 'a' ||
 substr(md5(n::text), 18))`
	RandomID = `(substr(md5(n::text), 1, 12) || '4' || substr(md5(n::text), 14, 3) || 'a' || substr(md5(n::text), 18))`
)

// Former are events that a relay has published before, as its journal has them.
type Former struct {
	Schema        string // of the relay's tables
	Source        string // as SQL
	ID            string // of event n, as SQL
	Topic         string
	Events, Batch int // all of them, numbered from 1; those of one of the journal's batches
}

// FillJournal writes the rows of the journal and its batches by two sessions, a million events at a time.
func (p *PG) FillJournal(t testing.TB, f Former) {
	t.Helper()
	var filled sync.WaitGroup
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset")
SELECT %s, %s, '%s', n %% 12, n FROM generate_series($1::int, $2) n`, f.Source, f.ID, f.Topic),
		fmt.Sprintf(`INSERT INTO cdc_relay_journal_batch (source, size, ids, mirrored)
SELECT %s, count(*), array_agg(id), true
FROM (SELECT (n - 1) / %d AS b, %s AS id FROM generate_series($1::int, $2) n) x GROUP BY b ORDER BY b`,
			f.Source, f.Batch, f.ID),
	} {
		conn := p.Connect(t)
		filled.Go(func() {
			const portion = 1_000_000
			_, err := conn.Exec(t.Context(), "SET search_path = "+f.Schema)
			for from := 1; err == nil && from <= f.Events; from += portion {
				_, err = conn.Exec(t.Context(), sql, from, min(from+portion-1, f.Events))
			}
			if err = cmp.Or(err, conn.Close(t.Context())); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		})
	}
	if filled.Wait(); t.Failed() {
		t.FailNow()
	}
}
