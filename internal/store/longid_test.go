package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// longID is an id of so many bytes that does not get shorter when it is compressed.
func longID(n, bytes int) string {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, bytes)
	for i := range b {
		b[i] = byte('!' + random.IntN('~'-'!'))
	}
	return string(b)
}

// ownLongest is the longest text id that the primary key of an outbox accepts.
const ownLongest = outbox.MaxID + 4

// textOutbox makes an outbox with text ids.
func textOutbox(t *testing.T, pg *harness.PG) {
	t.Helper()
	pg.Exec(t, `CREATE TABLE outbox_events (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, headers jsonb, created_at timestamptz DEFAULT now(), published_at timestamptz)`)
}

const parkedAndDead = `SELECT (SELECT count(*) FROM cdc_relay_parked) || ' ' || count(*) FROM outbox_events_dlq`

func insertIDs(t *testing.T, pg *harness.PG, ids ...string) {
	t.Helper()
	for _, id := range ids {
		pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
 VALUES ('%s', 'a', 'k', 'made', '{}')`, strings.ReplaceAll(id, "'", "''")))
	}
}

func deadWithID(id string) store.Dead {
	d := deadAt(1, "k")
	d.Event.ID, d.Code = []byte(id), "INVALID_ID"
	return d
}

// Breaks caught: a bound of ids above what the journal's index holds, so that a batch with one is never journaled, or
// far below it; dead letters, parked events and their look-ups that have the same bound. Seen to fail with a bound one
// byte higher or lower, and with the keys of dead letters and of parked events as they were before (each by itself).
func TestIDsThatTheJournalCannotHoldAreHeldByEveryOtherTable(t *testing.T) {
	pg := harness.Postgres(t)
	textOutbox(t, pg)
	c := usual(t, pg)
	s := owner(t, pg, c)
	longest, longer, endless := longID(1, outbox.MaxID), longID(2, ownLongest), longID(3, 20_000)
	insertIDs(t, pg, longest, longer)
	one := func(id string) []store.Published {
		return []store.Published{{ID: []byte(id), Topic: "t", Partition: 1, Offset: 1}}
	}
	must(t, "journal the longest id", s.Settle(t.Context(), one(longest), nil))
	if err := s.Settle(t.Context(), one(longID(4, outbox.MaxID+1)), nil); !store.IsAboutRows(err) {
		t.Errorf("journal a longer id: got %v, want a refusal of the row", err)
	}
	for range 2 { // the second time nothing changes
		must(t, "store dead letters", s.Settle(t.Context(), nil, []store.Dead{deadWithID(longer), deadWithID(endless)}))
	}
	if n := pg.Query(t, `SELECT count(*) FROM outbox_events_dlq`); n != "2" {
		t.Errorf("dead letters: got %s, want 2", n)
	}
	parked := parkedAt(1, "k", 0)
	parked.Event.ID = []byte(longID(5, 20_000))
	for i := range 2 {
		n, err := s.Park(t.Context(), []store.Parked{parked})
		must(t, "park", err)
		if n != int64(1-i) {
			t.Errorf("park for the %d. time: got %d parked, want %d", i+1, n, 1-i)
		}
	}
	ids := [][]byte{[]byte(longest), []byte(longer), []byte(endless), parked.Event.ID, []byte(longID(6, 20_000))}
	recorded, err := s.Lookup(t.Context(), ids)
	must(t, "look up", err)
	if fmt.Sprint(recorded) != "[true true true true false]" {
		t.Errorf("recorded: got %v, want all but the last", recorded)
	}
	if letter, err := s.DeadLetter(t.Context(), endless); err != nil || letter.ID != endless {
		t.Errorf("the dead letter: got %+v, %v", letter, err)
	}
	status := pg.Query(t, `SELECT string_agg(status, ' ' ORDER BY status) FROM outbox_events_status`)
	if status != "failed published" {
		t.Errorf("status of the rows: got %s, want failed published", status)
	}
	must(t, "give up", giveUp(t, s, store.Dead{Event: parked.Event, Topic: "t", Partition: -1, Attempts: 1,
		Class: outbox.Permanent, Code: "INVALID_ID", Text: "why"}))
	if n := pg.Query(t, parkedAndDead); n != "0 3" {
		t.Errorf("parked and dead: got %s, want 0 3", n)
	}
}

// Break caught: a replay of what could be published and never recorded. Seen to fail with the ids not looked at, and
// without the refusal.
func TestReplayOfIDsThatTheJournalCannotHoldIsRefused(t *testing.T) {
	pg := harness.Postgres(t)
	textOutbox(t, pg)
	s := owner(t, pg, usual(t, pg))
	good := deadWithID("short")
	good.Code = "MESSAGE_TOO_LARGE"
	bury(t, s, deadWithID(longID(1, ownLongest)), good)
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	step, err := s.ReplayDead(t.Context(), r, store.DeadCursor{}, 10)
	must(t, "replay", err)
	if step.Seen != 1 || step.Parked != 1 {
		t.Errorf("replay: got %d seen, %d parked, want 1 each", step.Seen, step.Parked)
	}
	_, err = s.ReplayDead(t.Context(), r, step.Next, 10)
	if !errors.Is(err, store.ErrCannot) || !strings.Contains(err.Error(), "1 dead letters are not replayed") {
		t.Errorf("the rest of the replay: got %v, want it refused, with the reason", err)
	}
	must(t, "finish", s.FinishRequest(t.Context(), r.ID, err.Error()))
	r = ask(t, s, store.RequestDiscard, store.Filter{All: true}, "ann", "")
	if step, err = s.DiscardDead(t.Context(), r, store.DeadCursor{}, 10); err != nil || step.Seen != 1 {
		t.Errorf("discard: got %d seen, %v, want 1", step.Seen, err)
	}
}

// Break caught: a first start with outbox.catch_up: false that never succeeds, or that forgets the row. Seen to fail
// with all ids put into the journal.
func TestBaselineTakesIDsThatTheJournalCannotHold(t *testing.T) {
	pg := harness.Postgres(t)
	textOutbox(t, pg)
	s := owner(t, pg, usual(t, pg))
	insertIDs(t, pg, "short", longID(1, ownLongest))
	n, err := s.SetBaseline(t.Context())
	must(t, "set the baseline", err)
	if n != 2 {
		t.Errorf("rows of the baseline: got %d, want 2", n)
	}
	if n, err := s.CountUnrecorded(t.Context(), 0); err != nil || n != 0 {
		t.Errorf("unrecorded rows after it: got %d, %v, want 0", n, err)
	}
	if n, err := s.CountDead(t.Context()); err != nil || n != 0 {
		t.Errorf("open dead letters after it: got %d, %v, want 0", n, err)
	}
}
