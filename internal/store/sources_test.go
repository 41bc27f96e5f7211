package store_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two outboxes have the same ids, and their outcomes come in one batch. Breaks it catches: a row, a batch of ids, a
// parked event, an attempt or a dead letter under another source than its event's; an event of one source that is taken
// out of the parked ones because of the other's. Each was seen to fail with the source of the first item taken for all.
func TestOutcomesOfSeveralSourcesStayApart(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	const other = otherSource
	mixed := func(n int) (all []store.Published) {
		for _, p := range published(n, uuid) {
			q := p
			q.Source, q.Offset = other, p.Offset+100
			all = append(all, q, p)
		}
		return all
	}
	is := func(what, query, want string) {
		t.Helper()
		if got := pg.Query(t, query); got != want {
			t.Errorf("%s: got %s, want %s", what, got, want)
		}
	}
	const rows = `SELECT string_agg(of || ':' || right(event_id::text, 1) || '@' || "offset", ' ' ORDER BY of, event_id)
 FROM (SELECT CASE source WHEN 77 THEN 'b' ELSE 'a' END AS of, * FROM cdc_relay_journal) j`
	const batches = `SELECT string_agg(of || ':' || size || '/' || cardinality(ids), ' ' ORDER BY batch)
 FROM (SELECT CASE source WHEN 77 THEN 'b' ELSE 'a' END AS of, * FROM cdc_relay_journal_batch) b`
	must(t, "settle", s.Settle(t.Context(), mixed(2), nil))
	is("journal", rows, "a:0@0 a:1@1 b:0@100 b:1@101")
	is("batches", batches, "a:2/2 b:2/2")
	must(t, "settle with some that are journaled", s.Settle(t.Context(), mixed(3), nil))
	is("journal after a conflict", rows, "a:0@0 a:1@1 a:2@2 b:0@100 b:1@101 b:2@102")

	parkAll(t, s, []store.Parked{parkedOf(parkedAt(5, "k", 0), other), parkedAt(5, "k", 0),
		parkedOf(parkedAt(6, "k", 0), other),
		parkedAt(6, "k", 0)})
	must(t, "retry later", s.RetryLater(t.Context(), []store.Attempt{
		{Source: other, ID: []byte(uuid(5)), Attempts: 8, RetryIn: time.Hour, Class: outbox.Transient},
		{ID: []byte(uuid(6)), Attempts: 9, RetryIn: time.Hour, Class: outbox.Transient},
	}))
	const parked = `SELECT string_agg(of || ':' || right(event_id::text, 1) || '/' || retry_count, ' '
  ORDER BY of, event_id)
 FROM (SELECT CASE source WHEN 77 THEN 'b' ELSE 'a' END AS of, * FROM cdc_relay_parked) p`
	is("parked", parked, "a:5/1 a:6/9 b:5/8 b:6/1")
	retried := published(6, uuid)[5:]
	retried[0].Source = other
	must(t, "settle retried", s.SettleRetried(t.Context(), retried))
	is("parked after a retry", parked, "a:5/1 a:6/9 b:6/1")

	d := dead(6)
	event := *d.Event
	event.Source, d.Event = other, &event
	if _, err := s.GiveUp(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	is("parked after a dead letter", parked, "a:5/1 a:6/9")
	d = dead(7)
	event = *d.Event
	event.Source, d.Event = other, &event
	must(t, "settle dead letters", s.Settle(t.Context(), nil, []store.Dead{d, dead(7)}))
	is("dead letters", `SELECT string_agg(CASE source WHEN 77 THEN 'b' ELSE 'a' END || ':' ||
 right(original_id::text, 1), ' ' ORDER BY source = 77, original_id) FROM outbox_events_dlq`, "a:7 b:6 b:7")
}

// parkedOf is the event as one of the source.
func parkedOf(e store.Parked, source int32) store.Parked {
	event := *e.Event
	event.Source, e.Event = source, &event
	return e
}
