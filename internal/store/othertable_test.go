package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// exchangeSQL gives the outbox's name to another table, which has rows of the same ids.
const exchangeSQL = `BEGIN; ALTER TABLE outbox_events RENAME TO former;
CREATE TABLE outbox_events (LIKE former INCLUDING ALL);
INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM former; COMMIT`

// rowMethods are the methods that read or change rows of the outbox, by the first words of their names.
var rowMethods = []string{
	"CountUnrecorded", "SnapshotCatchUp", "ReusedAside", "CatchUpRows", "SetBaseline", "UnrecordedSince", "UnrecordedIn",
	"LateRows", "RepublishRows", "AuditRows", "MirrorStep", "DeleteStep", "Prune", "PruneDead", "ShowDead", "ShowRetried",
	"replay", "ReplayDead", "Find", "Locate", "OfAggregate", "OfKey", "Cleanable",
}

// Break caught: a method that takes rows of a table that was given the outbox's name for the outbox's: it would
// publish, mark or delete them, or forget what is recorded of rows that have another name now.
func TestNoMethodTakesAnotherTableForTheOutbox(t *testing.T) {
	pg, s, c := withEverything(t, store.Mark)
	pg.Exec(t, exchangeSQL+`; UPDATE cdc_relay_state SET baseline_at = NULL`)
	facts := func() string {
		return pg.Query(t, `SELECT concat_ws(' ', (SELECT count(*) FROM cdc_relay_journal),
 (SELECT count(*) FROM cdc_relay_catch_up), (SELECT count(*) FROM outbox_events_dlq),
 (SELECT md5(string_agg(concat(x.ctid, x.xmin), ',' ORDER BY id)) FROM outbox_events x))`)
	}
	was, refused := facts(), map[string]bool{}
	// A store that has seen the table before, then looks again, and one that comes later.
	methods := slices.Concat(cleaningMethods(s), manyMethods(s)[:8], everyMethod(s, store.Mark),
		everyMethod(open(t, c), store.Mark))
	for _, row := range methods {
		name := strings.Fields(strings.TrimLeft(row.what, "0123456789 "))[0]
		if !slices.Contains(append(rowMethods, "Outbox", "AddRequest", "NextRequest"), name) {
			continue
		}
		err := row.do(t.Context())
		refused[name] = refused[name] || errors.Is(err, store.ErrOtherTable)
		if got := facts(); got != was {
			t.Fatalf("%s of another table: it made %s of %s", row.what, got, was)
		}
	}
	for _, name := range rowMethods {
		if !refused[name] {
			t.Errorf("%s: it works on a table that is not the outbox", name)
		}
	}
}
