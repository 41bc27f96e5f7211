package bench

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	formerTopic   = "of the weeks before" // of the events of a long journal
	drainLongV7   = "long-journal"        // ids in the order of time, as the relay's own table makes them
	drainLongV4   = "long-journal-v4"     // random ids
	journalSource = 1                     // its number, which is drawn by lot otherwise
)

// formerIDs are those of events n of a long journal, as SQL, by whether they are random.
var formerIDs = map[bool]string{
	false: `(lpad(to_hex(1760000000000 + n / 5), 12, '0') || '7' || substr(md5(n::text), 1, 3) || 'a' ||
 substr(md5(n::text), 18))::uuid`,
	true: `(substr(md5(n::text), 1, 12) || '4' || substr(md5(n::text), 14, 3) || 'a' || substr(md5(n::text), 18))::uuid`,
}

// fillJournal makes a database whose relay has published so many events in the weeks before, for runs to begin with a
// copy of it.
func (st *stage) fillJournal(t *testing.T) (database string) {
	t.Helper()
	name := harness.Unique(t, "former")
	st.server.Exec(t, "CREATE DATABASE "+name)
	pg := &harness.PG{Server: st.server.Server, Database: name, URL: st.server.Server.URL(name)}
	t.Cleanup(func() { st.drop(t, name) })
	harness.NewRelay(t, harness.NewSettings(t, pg, st.kafka.Addrs)).Init(t)
	// Its tables are what is wanted of it; each run has a relay of its own.
	pg.Exec(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
	pg.Exec(t, "TRUNCATE cdc_relay_source, cdc_relay_epoch, cdc_relay_state CASCADE")
	ids := formerIDs[st.randomIDs]
	pg.Exec(t, fmt.Sprintf("ALTER TABLE cdc_relay_source ALTER source SET DEFAULT %d", journalSource))
	pg.Exec(t, "ALTER TABLE cdc_relay_journal DROP CONSTRAINT cdc_relay_journal_pkey")
	var filled sync.WaitGroup
	for _, sql := range []string{
		fmt.Sprintf(`INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset")
SELECT %d, %s, '%s', n %% 12, n FROM generate_series($1::int, $2) n`, journalSource, ids, formerTopic),
		fmt.Sprintf(`INSERT INTO cdc_relay_journal_batch (source, size, ids, mirrored)
SELECT %d, count(*), array_agg(id), true
FROM (SELECT (n - 1) / 10 AS b, %s AS id FROM generate_series($1::int, $2) n) x GROUP BY b ORDER BY b`,
			journalSource, ids),
	} {
		conn := pg.Connect(t)
		filled.Go(func() {
			const portion = 1_000_000
			for from := 1; from <= st.journal; from += portion {
				if _, err := conn.Exec(t.Context(), sql, from, min(from+portion-1, st.journal)); err != nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	if filled.Wait(); t.Failed() {
		t.FailNow()
	}
	pg.Exec(t, "SET maintenance_work_mem = '1GB'; ALTER TABLE cdc_relay_journal ADD PRIMARY KEY (source, event_id)")
	pg.Exec(t, "VACUUM ANALYZE")
	pg.Exec(t, "CHECKPOINT") // what was written leaves the WAL
	return name
}

// create makes a run's database: empty, or with a long journal.
func (st *stage) create(t *testing.T, name string) {
	t.Helper()
	sql := "CREATE DATABASE " + name
	if st.journal > 0 {
		sql += " TEMPLATE " + st.filled + " STRATEGY file_copy"
	}
	st.server.Exec(t, sql)
}
