package store_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What a walsender is at is shown by role: one that may not see it must read "not shown", never "it runs". Breaks it
// catches: a hidden session taken for one that works; a role's own session that is not recognised; the position of
// another process. Seen to fail with every session taken for visible, and with the position of any walsender.
func TestWalsenderIsToldAsFarAsTheRoleMaySee(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	s := registered(t, c)
	supers := takeOver(t, pg, c, s)
	other := asOther(t, pg, c)
	as, err := url.Parse(other.URL)
	must(t, "read the URL", err)
	pg.Exec(t, "ALTER ROLE "+as.User.Username()+" NOSUPERUSER REPLICATION")
	theirs := *pg
	theirs.URL = other.URL
	slot := harness.Unique(t, "theirs")
	pg.Exec(t, "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	owns := walsender(t, &theirs, slot)
	harness.Eventually(t, 30*time.Second, "both send", func(context.Context) string { // a moment after they were started
		n := pg.Query(t, fmt.Sprintf(`SELECT count(*) FROM pg_stat_replication
WHERE sent_lsn IS NOT NULL AND pid IN (%d, %d)`, supers.PID(), owns.PID()))
		if n != "2" {
			return n + " of them"
		}
		return ""
	})
	for _, of := range []struct {
		name          string
		s             *store.Store
		pid           uint32
		visible, sent bool
	}{
		{"a superuser of its own", s, supers.PID(), true, true},
		{"a superuser of another's", s, owns.PID(), true, true},
		{"a role of its own", open(t, other), owns.PID(), true, false},
		{"a role of another's", open(t, other), supers.PID(), false, false},
		{"a process that is gone", s, 0, false, false},
	} {
		w, err := of.s.Walsender(t.Context(), of.pid)
		must(t, of.name, err)
		if w.Visible != of.visible || (w.Sent != nil) != of.sent || w.Works() && !w.Visible {
			t.Errorf("%s: got %+v, want visible %t, its position %t", of.name, w, of.visible, of.sent)
		}
	}
	_ = owns.Close(context.Background()) // before its role goes
}

// Break caught: what another slot's transactions have spilled told of this one. Seen to fail with the slot's name not
// asked.
func TestWalsenderIsToldWhatItsOwnSlotHasSpilled(t *testing.T) {
	pg := harness.Postgres(t)
	conn := pg.Connect(t)
	exec(t, conn, `CREATE TABLE large (i int); CREATE PUBLICATION large FOR TABLE large;
SET logical_decoding_work_mem = '64kB'`)
	spill := func(slot string) {
		t.Helper()
		exec(t, conn, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
		exec(t, conn, `INSERT INTO large SELECT generate_series(1, 5000)`)
		exec(t, conn, `SELECT count(*) FROM pg_logical_slot_get_binary_changes('`+slot+`', NULL, NULL, 'proto_version', '1',
 'publication_names', 'large')`)
		harness.Eventually(t, waitLong, "the server counts what was spilled", func(context.Context) string {
			return pg.Query(t, `SELECT CASE WHEN sum(spill_txns) > 0 THEN NULL ELSE 'not yet' END
 FROM pg_stat_replication_slots WHERE slot_name = '`+slot+`'`)
		})
	}
	spill(harness.Unique(t, "before"))
	c := usual(t, pg)
	s := registered(t, c)
	pid := takeOver(t, pg, c, s).PID()
	spill(harness.Unique(t, "behind"))
	if w, err := s.Walsender(t.Context(), pid); err != nil || w.SpilledTransactions != 0 {
		t.Errorf("spilled: got %+v, %v, want nothing of its own slot", w, err)
	}
}
