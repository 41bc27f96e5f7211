package bench

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	formerTopic   = "of the weeks before" // of the events of a long journal
	drainLongV7   = "long-journal"        // ids in the order of time, as the relay's own table makes them
	drainLongV4   = "long-journal-v4"     // random ids
	journalSource = "1"                   // its number, which is drawn by lot otherwise
)

// fillJournal makes a database whose relay has published so many events in the weeks before, for runs to begin with a
// copy of it.
func (st *stage) fillJournal(t *testing.T) (database string) {
	t.Helper()
	name := harness.Unique(t, "former")
	st.server.Exec(t, "CREATE DATABASE "+name)
	pg := &harness.PG{Server: st.server.Server, Database: name, URL: st.server.Server.URL(name)}
	t.Cleanup(func() { st.drop(t, name) })
	harness.NewRelay(t, harness.NewSettings(t, pg, st.kafka.Addrs)).Init(t)
	// Only its tables are used; each run has a relay of its own.
	pg.Exec(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
	pg.Exec(t, "TRUNCATE cdc_relay_source, cdc_relay_epoch, cdc_relay_state CASCADE")
	pg.Exec(t, "ALTER TABLE cdc_relay_source ALTER source SET DEFAULT "+journalSource)
	pg.Exec(t, "ALTER TABLE cdc_relay_journal DROP CONSTRAINT cdc_relay_journal_pkey")
	ids := harness.OrderedID
	if st.randomIDs {
		ids = harness.RandomID
	}
	pg.FillJournal(t, harness.Former{Schema: "public", Source: journalSource, ID: ids + "::uuid", Topic: formerTopic,
		Events: st.journal, Batch: 10})
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
