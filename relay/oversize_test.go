package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Rows beyond limits.max_event_bytes, that the stream brings and that a catch-up finds in the table. Breaks it catches:
// one that is read whole, a neighbour or follower that waits, a tombstone in its place, a replay that sends nothing or
// something else. Written, but not run, to fail with the stream's rows not skimmed, and with a page of the table
// without the bound.
func TestRowsThatAreTooLargeToReadDieAloneAndCanBeReplayed(t *testing.T) {
	t.Parallel()
	for _, payloadType := range []string{"jsonb", "bytea"} {
		t.Run(payloadType, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			literal := func(n int, fill string) string { return fmt.Sprintf(`'{"n": %d, "fill": "%s"}'`, n, fill) }
			b.plainTable(payloadType)
			b.c.Limits.MaxEventBytes = config.ByteSize(256 << 10)
			large := strings.Repeat("x", 600<<10)
			event := func(id string, n int, fill string) string {
				payload := literal(n, fill)
				if payloadType == "bytea" {
					payload = "convert_to(" + payload + ", 'UTF8')"
				}
				return row("'"+id+"'", "'k'", payload, "NULL")
			}
			b.pg.Exec(t, "BEGIN;"+event("t1", 1, "")+event("t2", 2, large)+event("t3", 3, "")+"COMMIT")
			r, stop := b.start() // which catches up
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, "BEGIN;"+event("s4", 4, "")+event("s5", 5, large)+event("s6", 6, "")+"COMMIT")
			b.waitDead(2)
			b.waitRecorded(4)
			b.pg.WaitConfirmed(t, b.c.Postgres.Slot, 10*time.Second)
			letters := b.pg.Query(t, `SELECT string_agg(original_id || ' ' || error_code || ' ' || (payload IS NULL)::text || ' '
 || (last_error LIKE '%payload kept in the table%')::text, ', ' ORDER BY original_id) FROM outbox_events_dlq`)
			if want := "s5 EVENT_TOO_LARGE true true, t2 EVENT_TOO_LARGE true true"; letters != want {
				t.Errorf("dead letters: got %s, want %s", letters, want)
			}
			if got := b.values("outbox.event.order")["k"]; len(got) != 4 {
				t.Errorf("topic: got %d values, want 4", len(got))
			}

			id := b.ask(store.RequestReplay, store.Filter{All: true})
			if request := b.waitExecuted(id); !strings.Contains(request.Error, "EVENT_TOO_LARGE") {
				t.Errorf("replay below the limit: got error %q, want one with EVENT_TOO_LARGE", request.Error)
			}
			mustStop(t, stop)

			b.c.Limits.MaxEventBytes = config.ByteSize(2 << 20)
			r, stop = b.start()
			b.waitRole(r, relay.RoleActive)
			b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
			b.waitRecorded(6)
			got := b.values("outbox.event.order")["k"]
			for _, value := range got[min(4, len(got)):] {
				if !strings.Contains(value, large) {
					t.Errorf("replayed: got %d bytes, %.40q, want the table's payload", len(value), value)
				}
			}
			if len(got) != 6 {
				t.Errorf("topic: got %d values, want 6", len(got))
			}
			mustStop(t, stop)
		})
	}
}
