package store_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: attempts of one transaction that are mixed up (seen to fail with all given the first one's), a
// time that is another than was asked for, a change of what is not named.
func TestFailedAttemptsAreNotedTogetherEachAsItWas(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	parkAll(t, s, []store.Parked{parkedAt(1, "a", 0), parkedAt(2, "b", 0), parkedAt(3, "c", 0), parkedAt(4, "d", 0)})
	must(t, "retry later", s.RetryLater(t.Context(), []store.Attempt{
		{ID: []byte(uuid(1)), Attempts: 4, RetryIn: time.Hour, Class: outbox.Transient, Text: "one"},
		{ID: []byte(uuid(2)), Attempts: 2, RetryIn: store.WhenWell, Class: outbox.Transient,
			Text: "two, \"quoted\" {braces}"},
		{ID: []byte(uuid(3)), Attempts: 7, RetryIn: store.NotDue, Class: outbox.BlockedBy, Text: ""},
		{ID: []byte(uuid(9)), Attempts: 1, Class: outbox.Transient, Text: "it is gone"},
	}))
	got := pg.Query(t,
		`SELECT string_agg(retry_count || '/' || error_class || '/' || coalesce(last_error, '') || '/' || CASE
 WHEN next_retry_at = 'infinity' THEN 'well'
		WHEN next_retry_at > now() + interval '59 minutes' THEN 'hour' WHEN next_retry_at IS NULL THEN 'never'
		ELSE 'due' END, '; ' ORDER BY event_id) FROM cdc_relay_parked WHERE convert_from(key, 'UTF8') < 'd'`)
	if want := `4/transient/one/hour; 2/transient/two, "quoted" {braces}/well; 7/blocked//never`; got != want {
		t.Errorf("parked events after three failed attempts: got %s, want %s", got, want)
	}
	if got := pg.Query(t, `SELECT retry_count FROM cdc_relay_parked WHERE convert_from(key, 'UTF8') = 'd'`); got != "1" {
		t.Errorf("attempts of an event that was not named: got %s, want 1", got)
	}
}

// Another relay had the slot for a while and journaled one of them. Breaks it catches: a batch that is never settled
// because of it (seen to fail with the journal copied only); an event that stays parked though it is journaled; a place
// in the journal that is the other relay's and may be gone (seen to fail with rows that conflict left as they are); an
// id that comes twice (seen to fail without DISTINCT).
func TestRetriedEventsSettleThoughSomeAreJournaled(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	parkAll(t, s, []store.Parked{parkedAt(0, "k", 0), parkedAt(1, "k", 0), parkedAt(2, "k", 0)})
	theirs, ours := published(1, uuid), published(3, uuid)
	for i := range ours {
		ours[i].Offset = 70 + int64(i)
	}
	ours = append(ours, ours[2]) // of an outbox whose ids are not unique
	must(t, "settle", s.Settle(t.Context(), theirs, nil))
	must(t, "settle retried", s.SettleRetried(t.Context(), ours))
	if got := pg.Query(t,
		`SELECT (SELECT count(*) FROM cdc_relay_journal) || ' ' || (SELECT count(*) FROM cdc_relay_parked)`); got != "3 0" {
		t.Errorf("journaled and parked: got %s, want 3 and 0", got)
	}
	if got := pg.Query(t,
		`SELECT string_agg("offset"::text, ' ' ORDER BY "offset") FROM cdc_relay_journal`); got != "70 71 72" {
		t.Errorf("places in the journal: got %s, want 70 71 72", got)
	}
}
