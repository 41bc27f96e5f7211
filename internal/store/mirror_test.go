package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// step runs one step and wants so many rows marked, and whether more are to be marked.
func step(t *testing.T, s *store.Store, what string, want int, wantMore bool) {
	t.Helper()
	rows, more, err := s.MirrorStep(t.Context(), 1000)
	if err != nil || rows != want || more != wantMore {
		t.Fatalf("%s: got %d marked rows, more %v, %v, want %d, %v", what, rows, more, err, want, wantMore)
	}
}

// noOlderTransaction waits until nothing that began before now is open, in any database of the shared server.
func noOlderTransaction(t *testing.T, s *store.Store) {
	t.Helper()
	blockers, err := s.Barrier(t.Context(), waitLong)
	must(t, "barrier", err)
	must(t, "barrier", store.ErrBarrier(blockers))
}

// Breaks caught: waiting for a locked row (the step would hang), or forgetting it (it would never be marked). Seen to
// fail with locked rows waited for.
func TestMirrorPassesOverLockedRowsAndFindsThemAgain(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	insertEvents(t, pg, 0, 10)
	must(t, "settle", s.Settle(t.Context(), published(10, uuid), nil))
	noOlderTransaction(t, s)
	application := pg.Connect(t)
	exec(t, application, "BEGIN; SELECT * FROM outbox_events WHERE seq IN (2, 3) FOR UPDATE")
	step(t, s, "two of ten locked", 8, true)
	pg.Exec(t, "UPDATE cdc_relay_journal_batch SET published_at = now() - interval '5 minutes' WHERE NOT mirrored")
	lag, age, err := s.MirrorLag(t.Context())
	if err != nil || lag != 2 || age < 5*time.Minute || age > 6*time.Minute {
		t.Errorf("lag: got %d for %v, %v, want the 2 locked rows for 5 minutes", lag, age, err)
	}
	exec(t, application, "COMMIT")
	mirrorAll(t, s, 2)
	if got := pg.Query(t, `SELECT count(*) FROM outbox_events WHERE published_at IS NULL`); got != "0" {
		t.Errorf("unmarked rows: got %s, want 0", got)
	}
	step(t, s, "all marked", 0, false)
	if lag, age, err = s.MirrorLag(t.Context()); err != nil || lag != 0 || age != 0 {
		t.Errorf("lag in the end: got %d for %v, %v, want 0", lag, age, err)
	}
}

// Break caught: a row that is locked and never marked, because another id has two rows, as it may in different
// partitions, and as many rows were marked as there are ids. Seen to fail with rows counted.
func TestMirrorFindsALockedRowAlsoWhereAnotherIDHasTwo(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	insertEvents(t, pg, 0, 2)
	pg.Exec(t, `ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey`)
	insertEvents(t, pg, 0, 1)
	must(t, "settle", s.Settle(t.Context(), published(2, uuid), nil))
	noOlderTransaction(t, s)
	application := pg.Connect(t)
	exec(t, application, "BEGIN; SELECT * FROM outbox_events WHERE id = '"+uuid(1)+"' FOR UPDATE")
	step(t, s, "two rows of one id, and a locked one", 2, true)
	exec(t, application, "COMMIT")
	mirrorAll(t, s, 1)
}

// Break caught: without the check of the writers' transactions the step finds no row to mark, takes the batch for done,
// and the row stays unpublished forever: under synchronous replication the stream is ahead of what is visible. Seen to
// fail with the writers' transactions not waited for.
func TestMirrorWaitsForRowsThatAreNotVisibleYet(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	application := pg.Connect(t)
	exec(t, application,
		fmt.Sprintf(`BEGIN; INSERT INTO outbox_events (id, aggregate_type, event_type) VALUES ('%s', 'a', 'e')`, uuid(0)))
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	step(t, s, "row not visible", 0, true)
	exec(t, application, "COMMIT")
	mirrorAll(t, s, 1)
}

// Break caught: a batch of another server's dump, whose transaction has a number that is not reached here for years,
// and that is never marked. Seen to fail with such numbers waited for.
func TestMirrorWaitsForNoTransactionOfAnotherServer(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	insertEvents(t, pg, 0, 1)
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	pg.Exec(t, `UPDATE cdc_relay_journal_batch SET xid = '999999999999'`)
	mirrorAll(t, s, 1)
}

// A batch has a lower number than another one, and is committed after that one was mirrored. Break caught: a mirror
// that goes by the highest number it has seen. Seen to fail so; the concurrent settles below meet that too rarely to
// show it.
func TestMirrorFindsABatchOfALowerNumberThatCameLater(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	insertEvents(t, pg, 0, 2)
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	mirrorAll(t, s, 1)
	batch := func(i int) string {
		return fmt.Sprintf(
			`INSERT INTO cdc_relay_journal_batch (source, size, ids) SELECT max(source), 1, ARRAY['%s'::uuid]
 FROM cdc_relay_journal_batch`, uuid(i))
	}
	first, second := pg.Connect(t), pg.Connect(t)
	exec(t, first, "BEGIN; SELECT pg_current_xact_id()")
	exec(t, second, "BEGIN; "+batch(1)) // the lower number, of the later transaction
	insertEvents(t, pg, 2, 1)
	exec(t, first, batch(2)+"; COMMIT")
	mirrorAll(t, s, 1)
	exec(t, second, "COMMIT")
	mirrorAll(t, s, 1)
}

// Breaks caught: a journal row of a slower settle that is passed unseen, and batches that are marked twice. Seen to
// fail with batches noted as mirrored that were not read.
func TestMirrorMarksEveryRowOnceUnderConcurrentSettles(t *testing.T) {
	const writers, rounds, size = 3, 20, 10
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.MarkSet, c.PublishedWhen = "published_at = now(), marks = marks + 1", ""
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	pg.Exec(t, `ALTER TABLE outbox_events ADD marks int NOT NULL DEFAULT 0`)
	insertEvents(t, pg, 0, writers*rounds*size)
	s := registered(t, c)
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			for r := range rounds {
				batch := published(size, func(i int) string { return uuid((w*rounds+r)*size + i) })
				if err := s.Settle(t.Context(), batch, nil); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for left := writers; left > 0; {
		select {
		case err := <-done:
			must(t, "settle", err)
			left--
		default:
		}
		_, _, err := s.MirrorStep(t.Context(), 50)
		must(t, "mirror", err)
	}
	harness.Eventually(t, waitLong, "mirror", func(ctx context.Context) string {
		if _, _, err := s.MirrorStep(ctx, 50); err != nil {
			return err.Error()
		}
		return pg.Query(t, `SELECT nullif(count(*), 0) || ' rows have no mark' FROM outbox_events WHERE marks = 0`)
	})
	if got := pg.Query(t, `SELECT count(*) FROM outbox_events WHERE marks <> 1`); got != "0" {
		t.Errorf("rows not marked exactly once: got %s, want 0", got)
	}
}

// Break caught: keep that marks, or mark_set that is ignored where there is no published_at.
func TestMirrorDoesWhatAfterPublishSays(t *testing.T) {
	pg := harness.Postgres(t)
	must(t, "migrate", open(t, usual(t, pg)).Migrate(t.Context()))
	for _, row := range []struct{ afterPublish, set, when, want string }{
		{store.Keep, "done = true", "", "false"}, {store.Delete, "done = true", "", "false"}, {store.Mark, "", "", "false"},
		{store.Mark, "done = true", "", "true"}, {store.Mark, "done = true", "done", "true"},
	} {
		t.Run(row.afterPublish+" "+row.set+" "+row.when, func(t *testing.T) {
			pg.Exec(t, `DROP TABLE IF EXISTS outbox_events CASCADE; DELETE FROM cdc_relay_schema
 WHERE part <> 'relay'; DROP TABLE IF EXISTS outbox_events_dlq;
CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload jsonb,
 created_at timestamptz, done boolean NOT NULL DEFAULT false)`)
			insertEvents(t, pg, 0, 1)
			c := usual(t, pg)
			c.AfterPublish, c.MarkSet, c.PublishedWhen = row.afterPublish, row.set, row.when
			s := registered(t, c)
			must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
			if row.want == "true" {
				mirrorAll(t, s, 1)
			} else {
				noOlderTransaction(t, s)
				step(t, s, "nothing to mark", 0, false)
			}
			if got := pg.Query(t, `SELECT done FROM outbox_events`); got != row.want {
				t.Errorf("done: got %s, want %s", got, row.want)
			}
		})
	}
}

// Breaks caught: pruning what an outbox row still needs, what the slot can deliver again, or what is young.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 0, 3)
	must(t, "settle", s.Settle(t.Context(), published(4, uuid), nil)) // 3 has no row
	prune := func(what string, retention time.Duration, want int) {
		t.Helper()
		noOlderTransaction(t, s)
		rows, _, err := s.Prune(t.Context(), retention, 1000)
		if err != nil || rows != want {
			t.Fatalf("%s: got %d pruned, %v, want %d", what, rows, err, want)
		}
	}
	must(t, "save progress", s.SaveProgress(t.Context(), 1<<62))
	prune("not yet marked", 0, 0)
	must(t, "take progress back", s.SaveProgress(t.Context(), 0))
	mirrorAll(t, s, 3)
	prune("marked, not confirmed", 0, 0)
	must(t, "save progress", s.SaveProgress(t.Context(), 1<<62))
	prune("young", time.Hour, 0)
	pg.Exec(t, `UPDATE outbox_events SET published_at = NULL WHERE seq = 2`)
	prune("one row no longer says that it is published", 0, 3)
	if got := journal(t, pg); got != "0001 outbox.event.Order 1 1" {
		t.Errorf("journal: got %s, want the row of id 1", got)
	}
	pg.Exec(t, `DELETE FROM outbox_events`)
	prune("no row left", 0, 1)
	if got := pg.Query(t, `SELECT count(*) FROM cdc_relay_journal_batch`); got != "0" {
		t.Errorf("batches in the end: got %s, want 0", got)
	}
}
