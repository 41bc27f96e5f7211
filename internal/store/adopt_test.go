package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	oldServer = "7000000000000000001" // that registered uses
	newServer = "7000000000000000002"
)

// withMemory is a former owner that has recorded events: ids 0 to 4 published, 0 after it was dead, 5 parked, 6 dead, 7
// discarded.
func withMemory(t *testing.T, pg *harness.PG, c store.Config) *store.Store {
	t.Helper()
	s := registered(t, c)
	conn := takeOver(t, pg, c, s)
	for i := range 9 {
		pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
VALUES ('%s', 'a', '1', 'e', '{}')`, uuid(i)))
	}
	must(t, "settle", s.Settle(t.Context(), published(5, uuid), []store.Dead{dead(6), dead(7)}))
	_, err := s.Park(t.Context(), []store.Parked{parkedAt(5, "1", time.Minute)})
	must(t, "park", err)
	pg.Exec(t, `UPDATE outbox_events_dlq SET discarded_at = now(), resolved_by = 'ann' WHERE original_id = '`+uuid(7)+`'`)
	pg.Exec(t, `INSERT INTO outbox_events_dlq (source, original_id, topic, position, epoch, from_stream, position_order,
 position_index, attempts, error_class, error_code, last_error, replayed_at)
 SELECT source, '`+uuid(0)+`', topic, position, epoch, from_stream, position_order, position_index, attempts,
 error_class, error_code, last_error, now() FROM outbox_events_dlq WHERE original_id = '`+uuid(6)+`'`)
	must(t, "offsets", s.AddTopics(t.Context(), []string{"outbox.event.Order"}))
	must(t, "leave the slot", conn.Close(t.Context()))
	return s
}

// recorded says which of the ids 0 to 8 are recorded.
func recorded(t *testing.T, s *store.Store) string {
	t.Helper()
	ids := make([][]byte, 9)
	for i := range ids {
		ids[i] = []byte(uuid(i))
	}
	found, err := s.Lookup(t.Context(), ids)
	must(t, "look up", err)
	return fmt.Sprint(found)
}

// Breaks caught: a move that forgets the journal, a parked event, or what a person has decided, so that it would be
// published again; one that forgets where the topics are to be read back from, or the fence; one that moves what is
// another slot's. Seen to fail without the raise of the epoch, without the offsets, and with the slot or the source
// left out of each step.
func TestAdoptedMemoryKnowsEverythingThatWasRecorded(t *testing.T) {
	moves := map[string]struct {
		slot, system string
		recreate     bool
	}{
		"another server":             {system: newServer},
		"another slot":               {slot: "moved_to", system: oldServer},
		"another server and slot":    {slot: "moved_to", system: newServer},
		"another table of that name": {system: oldServer, recreate: true},
		"restored from a dump":       {slot: "moved_to", system: newServer, recreate: true},
	}
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			pg := harness.Postgres(t)
			c := usual(t, pg)
			before := withMemory(t, pg, c)
			want := recorded(t, before)
			pg.Exec(t, neighbourSQL)
			pg.Exec(t, `UPDATE cdc_relay_journal_batch SET wal_lsn = '7FFFFFFF/0'`)
			neighbour := neighbourRows(t, pg)
			asked(t, before)
			last := asked(t, before)
			pg.Exec(t, fmt.Sprintf(`DELETE FROM cdc_relay_request WHERE id = %d`, last))
			dropSlot(t, pg, c.Slot)
			if move.recreate {
				pg.Exec(t, `ALTER TABLE outbox_events RENAME TO outbox_before;
CREATE TABLE outbox_events (LIKE outbox_before INCLUDING ALL);
INSERT INTO outbox_events OVERRIDING SYSTEM VALUE SELECT * FROM outbox_before;
DROP TABLE outbox_before CASCADE`)
			}
			if move.slot != "" {
				c.Slot = harness.Unique(t, move.slot)
			}
			s := open(t, c)
			must(t, "migrate", s.Migrate(t.Context()))
			dry, err := s.Adopt(t.Context(), store.Home{SystemID: move.system, Timeline: 3, Dry: true})
			must(t, "adopt, dry", err)
			if dry.AtHome || dry.Parked != 1 || dry.DeadLetters != 1 || dry.Discarded != 1 {
				t.Errorf("dry run: got %+v, want 1 parked, 1 dead letter, 1 discarded", dry)
			}
			a, err := s.Adopt(t.Context(), store.Home{SystemID: move.system, Timeline: 3})
			must(t, "adopt", err)
			if a != dry {
				t.Errorf("got %+v, and the dry run said %+v", a, dry)
			}
			st, err := s.State(t.Context())
			must(t, "read the state", err)
			o, err := s.Outbox(t.Context())
			must(t, "read the outbox", err)
			if st.Source != a.From.Source || st.TableOID != o.OID || st.SystemID != move.system || st.Timeline != 3 ||
				st.Phase != store.CatchUp || !st.Dirty || st.Confirmed != 0 || st.Epoch != 2 {
				t.Errorf("state: got %+v, want that of source %d at home here, from the table, dirty, epoch 2", st, a.From.Source)
			}
			if n, err := s.CountUnrecorded(t.Context(), 0); err != nil || n != 1 {
				t.Errorf("unrecorded rows: got %d, %v, want 1: the one that nobody has published", n, err)
			}
			tails, err := s.Tails(t.Context())
			if err != nil || len(tails) != 1 {
				t.Errorf("topics to read back: got %v, %v, want 1", tails, err)
			}
			wantFormer := ""
			if move.system != oldServer {
				wantFormer = oldServer
			}
			if got := strings.Join(st.FormerSystems, ","); got != wantFormer {
				t.Errorf("former systems: got %q, want %q", got, wantFormer)
			}
			if got := neighbourRows(t, pg); got != neighbour {
				t.Errorf("the neighbour's rows: got %s, want %s as before", got, neighbour)
			}
			if next := asked(t, s); next <= last {
				t.Errorf("the next request: got the number %d, which was given before", next)
			}
			again, err := s.Adopt(t.Context(), store.Home{SystemID: move.system, Timeline: 3})
			if err != nil || !again.AtHome {
				t.Errorf("adopt again: got %+v, %v, want nothing to do", again, err)
			}
			takeOver(t, pg, c, s)
			if got := recorded(t, s); got != want {
				t.Errorf("recorded: got %s, want %s as before", got, want)
			}
			if move.recreate {
				return // the view went with the table
			}
			if status := pg.Query(t, `SELECT string_agg(status, ',' ORDER BY id) FROM outbox_events_status`); status !=
				"published,published,published,published,published,retrying,failed,failed,pending" {
				t.Errorf("the view says %s", status)
			}
		})
	}
}

// Break caught: a former owner that is still alive and writes under its old slot's name or epoch. Seen to fail with the
// epoch left as it was.
func TestAdoptionFencesTheFormerOwner(t *testing.T) {
	for _, slot := range []string{"", "moved_to"} {
		pg := harness.Postgres(t)
		c := usual(t, pg)
		former := withMemory(t, pg, c)
		dropSlot(t, pg, c.Slot)
		if slot != "" {
			c.Slot = harness.Unique(t, slot)
		}
		_, err := open(t, c).Adopt(t.Context(), store.Home{SystemID: newServer, Timeline: 1})
		must(t, "adopt", err)
		if err := giveUp(t, former, dead(8)); !errors.Is(err, store.ErrFenced) {
			t.Errorf("slot %q: a dead letter of the former owner: got %v, want ErrFenced", slot, err)
		}
	}
}

// Breaks caught: a restored database whose relay trusts it; a neighbour's that is not trusted any more. Seen to fail
// with nothing done, and with the slot left out of either statement.
func TestRestoredMemoryIsReadBack(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	withMemory(t, pg, c)
	pg.Exec(t, neighbourSQL+`; UPDATE cdc_relay_state SET dirty = false`)
	neighbour := neighbourRows(t, pg)
	dropSlot(t, pg, c.Slot)
	s := open(t, c)
	a, err := s.Adopt(t.Context(), store.Home{SystemID: oldServer, Timeline: 1, Restored: true})
	if err != nil || !a.AtHome {
		t.Errorf("adopt: got %+v, %v, want it at home", a, err)
	}
	if st, err := s.State(t.Context()); err != nil || !st.Dirty || st.Epoch != 2 {
		t.Errorf("state: got %+v, %v, want it dirty, epoch 2", st, err)
	}
	if got := neighbourRows(t, pg); got != neighbour {
		t.Errorf("the neighbour's rows: got %s, want %s as before", got, neighbour)
	}
}

// Breaks caught: a memory that is not listed, or listed with what another one has recorded; a source forgotten that
// stands for something. Seen to fail with each condition of the list, and of what is forgotten, left out.
func TestAdoptionForgetsOnlyASourceThatStandsForNothing(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	withMemory(t, pg, c)
	dropSlot(t, pg, c.Slot)
	from := c.Slot
	pg.Exec(t, `INSERT INTO cdc_relay_source (source, slot, table_oid, table_name, created_at)
SELECT 90 + n, v.slot, table_oid::bigint + other, v.name, now() + n * interval '1 s' FROM cdc_relay_source,
 (VALUES (1, 'home', 0, 'public.outbox_events'), (2, 'home', 7, 'x'), (3, 'by_oid', 0, 'x'),
 (4, 'by_name', 9, 'public.outbox_events'), (5, 'none', 9, 'x')) v(n, slot, other, name)`)
	pg.Exec(t, `SELECT pg_create_logical_replication_slot('`+harness.Unique(t, "another")+`', 'pgoutput')`)
	c.Slot = "home"
	s := open(t, c)
	memories := func() (list string) {
		t.Helper()
		all, err := s.Memories(t.Context())
		must(t, "list memories", err)
		for _, m := range all {
			list += fmt.Sprint(strings.ReplaceAll(m.Slot, from, "from"), " ", m.Recorded, m.SystemID != "", m.SlotThere, ", ")
		}
		return list
	}
	const nothing = " false false false, "
	want := "by_name" + nothing + "by_oid" + nothing + "home" + nothing + "home" + nothing + "from true true false, "
	if got := memories(); got != want {
		t.Errorf("memories: got %s, want %s", got, want)
	}
	home := store.Home{From: from, SystemID: newServer, Timeline: 1}
	pg.Exec(t, `INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset")
SELECT 91, event_id, topic, partition, "offset" FROM cdc_relay_journal`)
	if _, err := s.Adopt(t.Context(), home); err == nil {
		t.Error("adopt beside a source that has published: got no error")
	}
	if got := strings.Replace(memories(), "home true", "home false", 1); got != want {
		t.Errorf("memories after a refusal: got %s, want %s", got, want)
	}
	pg.Exec(t, `DELETE FROM cdc_relay_journal WHERE source = 91`)
	_, err := s.Adopt(t.Context(), home)
	must(t, "adopt", err)
	want = "by_name" + nothing + "by_oid" + nothing + "home" + nothing + "home true true false, "
	if got := memories(); got != want {
		t.Errorf("memories after the adoption: got %s, want %s", got, want)
	}
}

// Break caught: a memory that is taken from a relay which still uses it, or one of several taken by guess. Seen to fail
// without either refusal.
func TestAdoptionNeedsOneMemoryThatNobodyUses(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	first := c.Slot
	pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, created_at timestamptz)`)
	if found, err := open(t, c).Memories(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("memories without the relay's tables: got %v, %v, want none", found, err)
	}
	must(t, "migrate", open(t, c).Migrate(t.Context()))
	refused := func(what string, c store.Config, from, want string) {
		t.Helper()
		_, err := open(t, c).Adopt(t.Context(), store.Home{From: from, SystemID: newServer, Timeline: 1})
		var wrong *store.AdoptError
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Error(), want) {
			t.Errorf("%s: got %v, want a refusal that says %q", what, err, want)
		}
	}
	refused("a first start", c, "", "no relay has recorded anything")
	s := registered(t, c)
	conn := takeOver(t, pg, c, s)
	moved := c
	moved.Slot = harness.Unique(t, "moved_to")
	refused("a relay that streams", moved, "", "a relay streams from slot")
	must(t, "leave the slot", conn.Close(t.Context()))
	slotFree(t, pg, first)
	refused("a slot that is still there", moved, "", "cdc-relay slot drop --postgres-slot")
	dropSlot(t, pg, first)
	other := c
	other.Slot = harness.Unique(t, "other")
	registered(t, other)
	refused("two memories", moved, "", "--from")
	refused("one that does not exist", moved, "nobody", "under slot")
	refused("a memory of its own beside another", other, "", "two memories cannot become one")
	refused("another's under a slot with a memory of its own", other, first, "two memories cannot become one")
	refused("nobody's under a slot with a memory of its own", other, "nobody", "already has records, and none exist")
	a, err := open(t, moved).Adopt(t.Context(), store.Home{From: first, SystemID: newServer, Timeline: 1})
	if err != nil || a.From.Slot != first {
		t.Errorf("adopt the first by name: got %+v, %v", a, err)
	}
}

// Logical replication has copied the rows and no sequence, from a server whose WAL was longer. Breaks caught: a row
// that gets the number of one that is there: a parked event with a text id was swallowed, in no table, and counted as
// recorded; batches of the journal and resolved dead letters that are never pruned, for their positions. Seen to fail
// with the parked events' numbers left out, with batches whose rows are deleted left where they were, and without the
// dead letters' places.
func TestAnAdoptedMemoryGoesOnBehindItsNumbersAndPositions(t *testing.T) {
	pg := harness.Postgres(t)
	textOutbox(t, pg)
	c := usual(t, pg)
	c.AfterPublish = store.Delete
	before := withMemory(t, pg, c)
	alarm := store.Alarm{Kind: "k", Topic: "t", Text: "x", Count: 1, FirstSeen: time.Now(), At: time.Now()}
	must(t, "raise an alarm", before.RaiseAlarm(t.Context(), alarm))
	asked(t, before)
	pg.Exec(t, `UPDATE cdc_relay_journal_batch SET wal_lsn = '7FFFFFFF/0', deleted = true;
UPDATE outbox_events_dlq SET position_order = ('7FFFFFFF/0'::pg_lsn - '0/0')::bigint`)
	dropSlot(t, pg, c.Slot)
	pg.Exec(t, neighbourDead+`;
CREATE TABLE others (id bigint GENERATED ALWAYS AS IDENTITY);
INSERT INTO others OVERRIDING SYSTEM VALUE VALUES (7)`)
	const identities = `SELECT attrelid::regclass AS rel, attname FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
 WHERE attidentity <> '' AND relkind = 'r' AND relname <> 'outbox_events'`
	pg.Exec(t, `DO $$ DECLARE r record; BEGIN FOR r IN `+identities+` LOOP
EXECUTE format('ALTER TABLE %s ALTER COLUMN %I RESTART', r.rel, r.attname); END LOOP; END $$`)
	s := open(t, c)
	_, err := s.Adopt(t.Context(), store.Home{SystemID: newServer, Timeline: 3})
	must(t, "adopt", err)
	if got := pg.Query(t, `SELECT nextval(pg_get_serial_sequence('others', 'id'))`); got != "1" {
		t.Errorf("next number of a table that is not the relay's: got %s, want 1 as before", got)
	}
	if got := pg.Query(t, `SELECT string_agg((source = 91) || ' ' || right(original_id::text, 1) || ' ' || from_stream,
 ', ' ORDER BY source = 91, original_id) FROM outbox_events_dlq`); got !=
		"false 0 false, false 6 true, false 7 false, true 0 true" {
		t.Errorf("places: got %s, want that of the open dead letter, and of another slot's, as before", got)
	}
	takeOver(t, pg, c, s)
	parkAll(t, s, []store.Parked{parkedAt(8, "1", time.Minute)})
	must(t, "settle", s.Settle(t.Context(), published(1, func(int) string { return "new" }), []store.Dead{dead(20)}))
	asked(t, s)
	alarm.Topic = "u"
	must(t, "raise another alarm", s.RaiseAlarm(t.Context(), alarm))
	pg.Exec(t, `UPDATE cdc_relay_journal_batch SET published_at = now() - interval '2 hours', deleted = true;
UPDATE outbox_events_dlq SET replayed_at = now() - interval '3 hours', dead_at = now() - interval '4 hours'
 WHERE replayed_at IS NOT NULL;
DELETE FROM outbox_events`)
	confirmHere(t, pg, s)
	if n, _, err := s.PruneDead(t.Context(), time.Hour, 100); err != nil || n != 1 {
		t.Errorf("resolved dead letters pruned: got %d, %v; want 1", n, err)
	}
	if n, _, err := s.Prune(t.Context(), time.Hour, 100); err != nil || n != 6 {
		t.Errorf("journal rows pruned: got %d, %v; want 6", n, err)
	}
}

// neighbourDead is a dead letter of another slot that was replayed.
const neighbourDead = `INSERT INTO outbox_events_dlq (source, original_id, topic, position, epoch, from_stream,
 position_order, position_index, attempts, error_class, error_code, last_error, replayed_at)
 SELECT 91, original_id, topic, position, epoch, true, position_order, position_index, attempts, error_class,
 error_code, last_error, now() FROM outbox_events_dlq ORDER BY original_id LIMIT 1`

// asked is the number of a new request.
func asked(t *testing.T, s *store.Store) int64 {
	t.Helper()
	id, err := s.AddRequest(t.Context(), store.RequestRetry, store.Filter{All: true}, "ann", "")
	must(t, "ask", err)
	return id
}

// dropSlot waits until the slot's last walsender has ended, and drops it.
func dropSlot(t testing.TB, pg *harness.PG, slot string) {
	t.Helper()
	slotFree(t, pg, slot)
	pg.Exec(t, fmt.Sprintf(`SELECT pg_drop_replication_slot('%s')`, slot))
}

func slotFree(t testing.TB, pg *harness.PG, slot string) {
	t.Helper()
	harness.Eventually(t, waitLong, "slot is free", func(context.Context) string {
		return pg.Query(t, `SELECT min('not yet') FROM pg_replication_slots WHERE active AND slot_name = '`+slot+`'`)
	})
}
