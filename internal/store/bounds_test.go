package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: a portion of lanes that are due in which the longest due are not, more lanes than were asked for,
// and a wait until another than the next time. Seen to fail with either order of DueLanes turned round, and with no
// limit.
func TestTheLongestDueLanesComeFirstAndNoMoreThanAskedFor(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	parkAll(t, s, []store.Parked{parkedAt(1, "a", 0), parkedAt(2, "b", 0), parkedAt(3, "c", 0)})
	pg.Exec(t, `UPDATE cdc_relay_parked SET next_retry_at = now() - CASE key WHEN 'a' THEN 1 WHEN 'b' THEN 3 ELSE 2 END
 * interval '1 min'`)
	lanes, _, err := s.DueLanes(t.Context(), 2, nil)
	must(t, "look for due lanes", err)
	var got []string
	for _, l := range lanes {
		got = append(got, string(l.Key))
	}
	if !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("two lanes that are due: got %v, want b and c", got)
	}
	pg.Exec(t, `UPDATE cdc_relay_parked SET next_retry_at = now() + CASE key WHEN 'a' THEN 2 WHEN 'b' THEN 3 ELSE 1 END
 * interval '1 h'`)
	_, next, err := s.DueLanes(t.Context(), 2, nil)
	if must(t, "look for the next time", err); next > time.Hour || next < 50*time.Minute {
		t.Errorf("the next is due: got in %v, want in an hour", next)
	}
}

// Breaks caught: a dead letter, or an event that is parked and journaled, that is written once more: what another
// relay wrote in the meantime would end the transaction. Seen to fail without ON CONFLICT in either statement.
func TestWhatIsWrittenAlreadyIsLeftAsItIs(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"))
	other := deadAt(1, "other")
	other.Text = "other"
	bury(t, s, other)
	if got := pg.Query(t, `SELECT string_agg(concat_ws(' ', convert_from(key, 'UTF8'), last_error), ', ')
 FROM outbox_events_dlq`); got != "k why" {
		t.Errorf("dead twice: got %s, want the first", got)
	}
	parkAll(t, s, []store.Parked{parkedAt(2, "k", time.Hour)})
	pg.Exec(t, `INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset")
 SELECT source, event_id, 't', 0, 1 FROM cdc_relay_parked`)
	r := ask(t, s, store.RequestRepublish, store.Filter{IDs: []string{uuid(2)}}, "ann", "")
	n, err := s.Republish(t.Context(), r, []store.Parked{parkedAt(2, "k", 0)})
	if must(t, "republish", err); n != 0 {
		t.Errorf("republished what is parked already: got %d", n)
	}
	if got := pg.Query(t, `SELECT next_retry_at > now() FROM cdc_relay_parked`); got != "true" {
		t.Errorf("parked as it was: got %s, want true", got)
	}
}

// Breaks caught: a list of alarms in which an open one does not come first, or that has no end. Seen to fail with
// either order turned round, and with no limit.
func TestOpenAlarmsComeFirstAndAListOfThemEnds(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	for n := range 4 {
		must(t, "raise an alarm", s.RaiseAlarm(t.Context(), store.Alarm{Kind: "k", Topic: fmt.Sprint(n), Partition: -1,
			Text: "why", Repair: "", At: time.Now(), Count: 1}))
	}
	list, err := s.Alarms(t.Context(), false)
	must(t, "list alarms", err)
	_, err = s.AckAlarms(t.Context(), []int64{list[0].ID, list[1].ID}, false, "ann", "")
	must(t, "acknowledge two", err)
	list, err = s.Alarms(t.Context(), true)
	must(t, "list alarms", err)
	var got []string
	for _, a := range list {
		got = append(got, a.Topic)
	}
	if want := "1 0 3 2"; strings.Join(got, " ") != want {
		t.Errorf("topics of the alarms: got %v, want %s", got, want)
	}
	pg.Exec(t, `INSERT INTO cdc_relay_alarms (source, kind, topic, partition, detail, repair, first_seen, last_seen, count)
 SELECT source, kind, 'more ' || n, partition, detail, repair, first_seen, last_seen, 1
 FROM cdc_relay_alarms, generate_series(1, 1000) n WHERE topic = '0'`)
	if list, err = s.Alarms(t.Context(), true); err != nil || len(list) != 1000 {
		t.Errorf("all alarms: got %d, %v, want 1000 of 1004", len(list), err)
	}
}

// Breaks caught: an outcome of a replay that is not where people look for it: the most first, and then by name. Seen
// to fail with each of the four keys turned round.
func TestOutcomesOfAReplayComeInOneOrder(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	topics := strings.Fields("v v u u w w")
	codes := strings.Fields("B A B A A A")
	for n, topic := range topics {
		d := deadAt(n, fmt.Sprint("k", n))
		d.Topic = topic
		bury(t, s, d)
	}
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	replayAll(t, s, r, 10)
	for n, topic := range topics {
		d := deadAt(n, fmt.Sprint("k", n))
		d.Topic, d.Code = topic, codes[n]
		_, err := s.GiveUp(t.Context(), d)
		must(t, "give up", err)
	}
	pg.Exec(t, `UPDATE outbox_events_dlq SET replayed_at = now() WHERE original_id = '`+uuid(4)+`'`)
	r, err := s.Request(t.Context(), r.ID)
	must(t, "read the request", err)
	must(t, "look what became of it", s.Outcomes(t.Context(), r))
	var got []string
	for _, o := range r.Outcomes {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", o.Events, o.State, o.Topic, o.Code)))
	}
	want := []string{"1 died again u A", "1 died again u B", "1 died again v A", "1 died again v B", "1 died again w A",
		"1 published"}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes: got %q, want %q", got, want)
	}
	pg.Exec(t, `UPDATE outbox_events_dlq SET replayed_at = now() WHERE topic = 'w'`)
	must(t, "look what became of it", s.Outcomes(t.Context(), r))
	if o := r.Outcomes[0]; o.State != "published" || o.Events != 2 {
		t.Errorf("the first outcome: got %+v, want the most", o)
	}
}

// Breaks caught: a list of what is alike that is longer than was asked for, or in an order of its own: what has no
// row any more, by id, and then rows, the newest first. Seen to fail with each key of the order turned round, and
// with no limit.
func TestWhatIsAlikeComesNewestFirstAndNoMoreThanAskedFor(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 3, 1)
	insertEvents(t, pg, 1, 2)
	insertEvents(t, pg, 0, 1)
	if got := alike(t, s, 10); got != "0 2 1 3" {
		t.Errorf("rows: got %s, want the newest first", got)
	}
	if got := alike(t, s, 3); got != "0 2 1" {
		t.Errorf("three rows: got %s", got)
	}
	for _, n := range []int{7, 5, 9} {
		p := parkedAt(n, "k", time.Hour)
		p.Event.AggregateType, p.Event.AggregateID = []byte("Order"), []byte("k")
		parkAll(t, s, []store.Parked{p})
	}
	if got := alike(t, s, 5); got != "5 7 9 0 2" {
		t.Errorf("five: got %s", got)
	}
	if got := len(strings.Fields(alike(t, s, 2))); got != 2 {
		t.Errorf("two: got %d", got)
	}
}

func alike(t *testing.T, s *store.Store, limit int) string {
	t.Helper()
	ids, err := s.OfAggregate(t.Context(), "Order", "k", 0, limit)
	must(t, "look for what is alike", err)
	var short []string
	for _, id := range ids {
		short = append(short, id[len(id)-1:])
	}
	return strings.Join(short, " ")
}

// Breaks caught: an outbox published before by other slots, where find reports the latest record, or none. Seen
// to fail with the order of what is journaled, parked or dead turned round, and with no limit to either; with no
// limit to rows of one id.
func TestFindTellsOfSeveralSlotsWhatIsTrueNow(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id uuid, aggregate_type text, aggregate_id text,
 event_type text, payload jsonb, headers jsonb, created_at timestamptz, published_at timestamptz)`)
	c := usual(t, pg)
	s := owner(t, pg, c)
	insertEvents(t, pg, 1, 3)
	insertEvents(t, pg, 1, 1) // twice, as a table without a key may have it
	must(t, "settle", s.Settle(t.Context(), []store.Published{{ID: []byte(uuid(1)), Topic: "new", Offset: 1}}, nil))
	parkAll(t, s, []store.Parked{parkedAt(2, "k", time.Hour)})
	bury(t, s, deadAt(3, "k"))
	pg.Exec(t, `INSERT INTO cdc_relay_source (source, slot, table_oid, table_name)
 SELECT source + 1, 'before', table_oid, table_name FROM cdc_relay_source`)
	for table, earlier := range map[string]string{
		"cdc_relay_journal": "published_at = published_at + interval '1 h'",
		"cdc_relay_parked":  "parked_at = parked_at - interval '1 h'",
		"outbox_events_dlq": "dead_at = dead_at - interval '1 h', id = id + 100",
	} {
		pg.Exec(t, `CREATE TABLE former AS SELECT * FROM `+table)
		pg.Exec(t, `UPDATE former SET source = source + 1, topic = 'old', `+earlier)
		pg.Exec(t, `INSERT INTO `+table+` OVERRIDING SYSTEM VALUE SELECT * FROM former`)
		pg.Exec(t, `DROP TABLE former`)
	}
	found, err := s.Find(t.Context(), []string{uuid(3), uuid(1), uuid(2)})
	must(t, "find", err)
	if found[0].ID != uuid(3) || found[1].ID != uuid(1) || found[2].ID != uuid(2) {
		t.Errorf("found: got %s, %s, %s, want them in the order of the question", found[0].ID, found[1].ID, found[2].ID)
	}
	if p := found[1].Published; p == nil || p.Topic != "new" {
		t.Errorf("published: got %+v, want where it was first", p)
	}
	if p := found[2].Parked; p == nil || p.Topic != "t" {
		t.Errorf("parked: got %+v, want where it is now", p)
	}
	if p := found[0].Dead; p == nil || p.Topic != "t" {
		t.Errorf("dead: got %+v, want its last death", p)
	}
	for id, want := range map[int]string{1: "published new", 2: "retrying t", 3: "failed t"} {
		if got := pg.Query(t, `SELECT min(concat_ws(' ', status, topic)) FROM outbox_events_status WHERE id = '`+uuid(id)+
			`'`); got != want {
			t.Errorf("the view of %d: got %s, want %s", id, got, want)
		}
	}
	if got := pg.Query(t, `SELECT count(*) FROM outbox_events_status`); got != "4" {
		t.Errorf("rows of the view: got %s, want one for each of the outbox", got)
	}
}

// Breaks caught: tails, waiting topics and transactions that are open in another order than the one that is promised.
// Seen to fail with each turned round.
func TestListsComeInTheOrderThatIsPromised(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	must(t, "add topics", s.AddTopics(t.Context(), []string{"c", "a", "b"}))
	must(t, "save offsets", s.SaveOffsets(t.Context(), []store.Offset{{Topic: "b", Partition: 2, Next: 9},
		{Topic: "b", Partition: 0, Next: 7}, {Topic: "b", Partition: 1, Next: 8}}))
	tails, err := s.Tails(t.Context())
	must(t, "read tails", err)
	var got []string
	for _, tail := range tails {
		got = append(got, tail.Topic)
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("tails: got %v", got)
	}
	for n, topic := range []string{"b", "c", "a"} {
		p := parkedAt(n, "k", store.WhenWell)
		p.Topic = topic
		parkAll(t, s, []store.Parked{p})
	}
	waiting, err := s.WaitingTopics(t.Context())
	if must(t, "list waiting topics", err); len(waiting) != 3 || waiting[0].Topic != "a" || waiting[2].Topic != "c" {
		t.Errorf("waiting topics: got %+v", waiting)
	}
	first := pg.Connect(t)
	exec(t, first, `BEGIN; SELECT pg_current_xact_id()`)
	second := pg.Connect(t)
	exec(t, second, `BEGIN; SELECT pg_current_xact_id()`)
	for what, list := range map[string]func(context.Context) ([]store.Blocker, error){
		"old":      func(ctx context.Context) ([]store.Blocker, error) { return s.OldTransactions(ctx, 0) },
		"blockers": func(ctx context.Context) ([]store.Blocker, error) { return s.Barrier(ctx, time.Millisecond) },
	} {
		open, err := list(t.Context())
		must(t, what, err)
		a := slices.IndexFunc(open, func(b store.Blocker) bool { return b.PID == int32(first.PgConn().PID()) })
		b := slices.IndexFunc(open, func(b store.Blocker) bool { return b.PID == int32(second.PgConn().PID()) })
		if a < 0 || b < a {
			t.Errorf("%s: got the first at %d and the second at %d, want the oldest first", what, a, b)
		}
	}
	exec(t, first, `ROLLBACK`)
	exec(t, second, `ROLLBACK`)
	topics, err := s.SeenTopics(t.Context(), 2)
	if must(t, "list topics seen", err); len(topics) != 2 {
		t.Errorf("two topics seen: got %v", topics)
	}
	insertEvents(t, pg, 0, 5)
	chosen, all, err := s.ChosenTopics(t.Context(), []outbox.Part{{Column: "id"}}, nil, 3)
	if must(t, "look which topics are chosen", err); len(chosen) != 3 || !all {
		t.Errorf("three topics chosen: got %v, %t", chosen, all)
	}
}

// Breaks caught: a portion whose bytes are counted from its end, or that has a later lane before the first; memories
// of one moment in any order. Seen to fail with either key of the sum turned round, and with that of the sources.
func TestPortionsCountTheirBytesFromTheFront(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	for n := range 6 {
		p := parkedAt(n, []string{"a", "b"}[n/3], 0)
		p.Event.Payload = []byte(strings.Repeat("x", 10_000))
		parkAll(t, s, []store.Parked{p})
	}
	asks := []store.Ask{{Lane: store.Lane{Topic: "t", Key: []byte("a")}}, {Lane: store.Lane{Topic: "t", Key: []byte("b")}}}
	for rows, want := range map[int]string{2: "0 1", 4: "0 1 2, 3"} {
		portions, err := s.Portions(t.Context(), asks, 10, rows*10_000+8_000)
		must(t, "read portions", err)
		var got []string
		for _, p := range portions {
			var ids []string
			for _, r := range p.Rows {
				ids = append(ids, string(r.Event.ID[len(r.Event.ID)-1]))
			}
			got = append(got, strings.Join(ids, " "))
		}
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%d rows' bytes: got %s, want %s", rows, got, want)
		}
	}
	pg.Exec(t, `INSERT INTO cdc_relay_source (source, slot, table_oid, table_name, created_at)
 SELECT source + n, 'x' || n, table_oid, table_name, created_at FROM cdc_relay_source, generate_series(1, 2) n`)
	memories, err := s.Memories(t.Context())
	must(t, "list memories", err)
	if len(memories) != 3 || memories[1].Slot != "x1" || memories[2].Slot != "x2" {
		t.Errorf("memories of one moment: got %+v, want them by their numbers", memories)
	}
}

// Break caught: a first start over a table in which two rows have one id, as a table without a key may have them.
// Seen to fail without ON CONFLICT for ids that the journal holds, and for those that it does not.
func TestBaselineTakesAnIDOnceThatTwoRowsHave(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id text, aggregate_type text, aggregate_id text,
 event_type text, payload jsonb, headers jsonb, created_at timestamptz, published_at timestamptz)`)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (id) SELECT id FROM generate_series(1, 2),
 (VALUES ('short'), (repeat('x', %d))) x(id)`, outbox.MaxID+1))
	_, err := s.SetBaseline(t.Context())
	must(t, "set the baseline", err)
	if got := pg.Query(t, `SELECT (SELECT count(*) FROM cdc_relay_journal) || ' ' ||
 (SELECT count(*) FROM outbox_events_dlq)`); got != "1 1" {
		t.Errorf("journaled and dead: got %s, want one of each", got)
	}
}

// Break caught: a breaker that looks at the oldest batches of a long journal, finds nothing published lately, and opens
// by the first death. Seen to fail with the order turned round.
func TestBreakerCountsTheLatestOfALongJournal(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `INSERT INTO cdc_relay_journal_batch (source, size, ids, published_at)
 SELECT source, 1, ARRAY['`+uuid(0)+`'::uuid], now() - interval '9 h' FROM cdc_relay_source, generate_series(1, 10000)`)
	must(t, "settle", s.Settle(t.Context(), published(3, uuid), nil))
	if b, err := s.Breaker(t.Context(), time.Hour, nil); err != nil || b.Published != 3 {
		t.Errorf("breaker: got %+v, %v, want the 3 published of this hour", b, err)
	}
}
