package store_test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Of two audits that overlap both find an event lost, and both have it published again. Breaks it catches: the second
// request doubling what the first has published since the second audit began; a time in the filter that is later than
// the request's, which would publish without an end. Seen to fail with the request's time alone, and with the
// filter's.
func TestRepublishedIsWhatWasJournaledWhenTheAuditBegan(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, `INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
 VALUES ('`+uuid(1)+`', 'order', 'k', 'x', '{}')`)
	began, err := s.Clock(t.Context())
	must(t, "ask for the time", err)
	for published, want := range map[string]int{"- interval '1 min'": 1, "": 1, "+ interval '1 min'": 0,
		"+ interval '2 h'": 0} {
		pg.Exec(t, `INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset", published_at)
 SELECT source, '`+uuid(1)+`', 't', 0, 1,
 timestamptz '`+began.UTC().Format("2006-01-02 15:04:05.999999Z")+`' `+published+`
 FROM cdc_relay_source ON CONFLICT (source, event_id) DO UPDATE SET published_at = excluded.published_at`)
		for _, times := range [][2]time.Duration{{time.Hour, 0}, {0, time.Hour}} { // of the request, and of the audit
			until := began.Add(times[1])
			rows, err := s.RepublishRows(t.Context(), &store.Request{RequestedAt: began.Add(times[0]),
				Filter: store.Filter{IDs: []string{uuid(1)}, Until: &until}}, 10)
			if must(t, "read the rows", err); len(rows) != want {
				t.Errorf("journaled at the audit's beginning %s, request and audit at %v: got %d rows, want %d", published, times,
					len(rows), want)
			}
		}
	}
}
