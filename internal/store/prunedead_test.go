package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// confirmHere saves the end of WAL as confirmed.
func confirmHere(t *testing.T, pg *harness.PG, s *store.Store) {
	t.Helper()
	at, err := outbox.ParseLSN(pg.Query(t, "SELECT pg_current_wal_insert_lsn()"))
	must(t, "parse", err)
	must(t, "save progress", s.SaveProgress(t.Context(), at))
}

// Breaks caught: a dead letter removed that is open, young, above the confirmed position (seen to fail without that
// condition), parked again, or the only thing that says that an outbox row is settled (seen to fail so); one that
// nothing needs and that stays.
func TestPruneDeadKeepsWhatIsNeeded(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 10) // outbox rows 0 to 9 are there, 10 to 19 are gone
	var letters []store.Dead
	for i := range 20 {
		d := dead(i)
		d.Event.Position = outbox.Position{Order: 1, Index: uint32(i)}
		letters = append(letters, d)
	}
	must(t, "settle", s.Settle(t.Context(), nil, letters))
	source := pg.Query(t, "SELECT source FROM cdc_relay_state")
	set := func(what string, ids ...int) {
		for _, i := range ids {
			pg.Exec(t, fmt.Sprintf("UPDATE outbox_events_dlq SET %s WHERE original_id = '%s'", what, uuid(i)))
		}
	}
	const old = "discarded_at = now() - interval '2 hours'"
	set(old, 0, 1, 2, 10, 11, 12, 13, 14)
	set("replayed_at = now() - interval '2 hours'", 3, 15)
	set("discarded_at = now()", 16)              // young
	set("position_order = 9000000000000000", 12) // above the confirmed position
	// of a catch-up, nothing journaled since
	set("from_stream = false", 13)
	pg.Exec(t, "UPDATE outbox_events SET published_at = now() WHERE id = '"+uuid(1)+"'") // says so itself
	pg.Exec(t, "INSERT INTO cdc_relay_journal (source, event_id, topic, partition, \"offset\") VALUES ("+source+", '"+
		uuid(3)+"', 't', 0, 0)")
	pg.Exec(t, `INSERT INTO cdc_relay_parked (source, event_id, topic, epoch, from_stream, position_order,
 position_index, error_class)
		VALUES (`+source+`, '`+uuid(14)+`', 't', 0, true, 1, 14, 'transient')`)
	if n, _, err := s.PruneDead(t.Context(), time.Hour, 100); err != nil || n != 0 {
		t.Fatalf("nothing is confirmed: got %d pruned, %v; want 0", n, err)
	}
	confirmHere(t, pg, s)
	if c, err := s.Cleanable(t.Context(), 0, time.Hour, time.Hour); err != nil || c.Dead != 5 {
		t.Errorf("cleanable: got %+v, %v; want 5 dead letters", c, err)
	}
	// a neighbour's batch that is later and confirmed, one that is earlier, and one that is not confirmed
	pg.Exec(t, `INSERT INTO cdc_relay_journal_batch (source, size, ids, published_at, wal_lsn) VALUES
(`+source+` - 1, 0, '{}', now() + interval '1 h', '0/1'), (`+source+`, 0, '{}', now() - interval '9 h', '0/1'),
(`+source+`, 0, '{}', now() + interval '1 h', 'FFFFFFFF/0')`)
	if n, more, err := s.PruneDead(t.Context(), time.Hour, 2); err != nil || n != 2 || !more {
		t.Fatalf("two at most: got %d pruned, more %t, %v", n, more, err)
	}
	if n, more, err := s.PruneDead(t.Context(), time.Hour, 100); err != nil || n != 3 || more {
		t.Fatalf("the rest: got %d pruned, more %t, %v; want 3", n, more, err)
	}
	// 1 says itself that it is published, 3 is journaled, the rows of 10, 11 and 15 are gone.
	if left := pg.Query(t,
		"SELECT string_agg((('x' || right(original_id::text, 4))::bit(16)::int)::text, ' ' ORDER BY original_id) FROM "+
			"outbox_events_dlq WHERE replayed_at IS NOT NULL OR discarded_at IS NOT NULL"); left != "0 2 12 13 14 16" {
		t.Errorf("resolved dead letters left: got %s, want 0 2 12 13 14 16", left)
	}
	must(t, "settle", s.Settle(t.Context(), published(1, func(int) string { return uuid(900) }), nil))
	confirmHere(t, pg, s)
	if n, _, err := s.PruneDead(t.Context(), time.Hour, 100); err != nil || n != 1 {
		t.Errorf("the one of a catch-up, once something later is confirmed: got %d pruned, %v; want 1", n, err)
	}
}

// Break caught: with a short journal.retention, rows of the outbox that are forgotten before their own retention is
// over (seen to fail with batches pruned that are not deleted yet).
func TestShortJournalRetentionForgetsNoRowToDelete(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.AfterPublish, c.Retention = store.Delete, time.Hour
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 10)
	must(t, "settle", s.Settle(t.Context(), published(10, uuid), nil))
	confirmHere(t, pg, s)
	if _, _, err := s.Prune(t.Context(), 0, 100); err != nil {
		t.Fatal(err)
	}
	if lag, _, err := s.MirrorLag(t.Context()); err != nil || lag != 0 {
		t.Errorf("lag within the retention: got %d, %v; want 0", lag, err)
	}
	pg.Exec(t, "UPDATE cdc_relay_journal_batch SET published_at = now() - interval '2 hours'")
	// what is younger, in front, and a neighbour's, or marked, is not the first that is too young
	pg.Exec(t, `INSERT INTO cdc_relay_journal_batch (batch, source, size, ids, mirrored) OVERRIDING SYSTEM VALUE
SELECT -n, source - n % 2, 0, '{}', n = 2 FROM cdc_relay_source, generate_series(1, 2) n`)
	if lag, age, err := s.MirrorLag(t.Context()); err != nil || lag != 10 || age < time.Hour || age > 61*time.Minute {
		t.Errorf("lag behind the retention: got %d for %v, %v; want 10 for an hour", lag, age, err)
	}
	confirmHere(t, pg, s)
	if n, _, err := s.DeleteStep(t.Context(), time.Hour, 100); err != nil || n != 10 {
		t.Errorf("deleted after the retention: got %d, %v; want 10", n, err)
	}
	if n, _, err := s.Prune(t.Context(), 0, 100); err != nil || n != 10 {
		t.Errorf("journal rows pruned after that: got %d, %v; want 10", n, err)
	}
}

// Breaks it catches: a request removed that is open, young, another slot's, or whose replayed event is still parked
// (seen to fail so: its dead letter would never be closed); one that is done and stays.
func TestPruneRequestsKeepsWhatIsOpenOrNeeded(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	slot := pg.Query(t, "SELECT slot FROM cdc_relay_state")
	for i, finished := range []string{"NULL", "now()", "now() - interval '2 hours'", "now() - interval '2 hours'",
		"now() - interval '2 hours'", "now() - interval '2 hours'"} {
		of := slot
		if i == 5 {
			of = "another"
		}
		pg.Exec(t, fmt.Sprintf("INSERT INTO cdc_relay_request (slot, kind, filter, who, requested_at, finished_at) VALUES "+
			"('%s', 'replay', '{}', 'w%d', now() - interval '3 hours', %s)", of, i, finished))
	}
	pg.Exec(t, `INSERT INTO cdc_relay_parked (source, event_id, topic, epoch, from_stream, position_order,
 position_index, error_class, replay)
		SELECT source, '`+uuid(1)+
		`', 't', 0, true, 1, 14, 'transient', (SELECT id FROM cdc_relay_request WHERE who = 'w3') FROM cdc_relay_state`)
	if n, more, err := s.PruneRequests(t.Context(), time.Hour, 1); err != nil || n != 1 || !more {
		t.Errorf("one at most: got %d, more %t, %v", n, more, err)
	}
	if n, more, err := s.PruneRequests(t.Context(), time.Hour, 100); err != nil || n != 1 || more {
		t.Errorf("the rest: got %d, more %t, %v; want 1", n, more, err)
	}
	if got := pg.Query(t, "SELECT string_agg(who, ' ' ORDER BY id) FROM cdc_relay_request"); got != "w0 w1 w3 w5" {
		t.Errorf("requests left: got %s, want w0 w1 w3 w5", got)
	}
}

// Break caught: pruning that waits for a dead letter that someone else holds, or gives up the others. Seen to fail
// without SKIP LOCKED, and without the lock.
func TestPruneDeadPassesOverWhatIsHeld(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"), deadAt(2, "k"))
	must(t, "save progress", s.SaveProgress(t.Context(), 1<<62))
	pg.Exec(t, `UPDATE outbox_events_dlq SET discarded_at = now() - interval '1 h'`)
	holder := pg.Connect(t)
	exec(t, holder, `BEGIN; SELECT FROM outbox_events_dlq WHERE original_id = '`+uuid(1)+`' FOR UPDATE`)
	if rows, _, err := s.PruneDead(t.Context(), time.Minute, 10); err != nil || rows != 1 {
		t.Errorf("prune beside a dead letter that is held: got %d, %v; want the other one", rows, err)
	}
	exec(t, holder, `COMMIT`)
	if rows, _, err := s.PruneDead(t.Context(), time.Minute, 10); err != nil || rows != 1 {
		t.Errorf("prune when it is free: got %d, %v; want 1", rows, err)
	}
}
