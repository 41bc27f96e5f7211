package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
)

// idsOf are the ids of the events with these numbers, in any order.
func (b *bed) idsOf(numbers string) []string {
	b.t.Helper()
	text := b.pg.Query(b.t, "SELECT string_agg(id::text, ',' ORDER BY md5(id::text)) FROM outbox_events "+
		"WHERE (payload->>'n')::int IN ("+numbers+")")
	return strings.Split(text, ",")
}

// Events that were published are to be published once more, as after a topic has lost them. Breaks it catches: one
// that is not sent, or sent twice, or in the order of the request instead of the table's; one that does not say that
// it was replayed; a journal that names the old place; an event that is in neither table for a moment, so that a death
// loses it. Seen to fail with the journal row kept (it names the old place), and with the death of one that was never
// a dead letter not noted.
func TestRepublishedEventsComeOnceInTheTablesOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var refuse atomic.Bool
	j := newJudgeful(func(value []byte, _ int) *sink.Reason {
		if refuse.Load() && is(value, 9) {
			return never
		}
		return nil
	})
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1000, 3))
	b.waitRecorded(1000)
	b.pg.Exec(t, "CREATE TABLE before AS SELECT * FROM cdc_relay_journal")

	lost := "3, 6, 12, 15, 700, 701, 702, 703, 900" // those of k0: 3, 6, 12, 15, 702, 900
	done := b.waitExecuted(b.ask(store.RequestRepublish, store.Filter{IDs: b.idsOf(lost)}))
	if done.Error != "" || done.Done != 9 || *done.Total != 9 {
		t.Errorf("request: got %+v, want 9 of 9 done", done)
	}
	b.waitRecorded(1000)
	b.waitNoneHeld(r)
	replayed, fresh := j.replayed(t)
	if got, want := fmt.Sprint(replayed), "map[k0:[3 6 12 15 702 900] k1:[700 703] k2:[701]]"; got != want {
		t.Errorf("published once more: got %s, want %s", got, want)
	}
	if n := len(slices.Concat(fresh["k0"], fresh["k1"], fresh["k2"])); n != 1000 {
		t.Errorf("published before: got %d, want 1000", n)
	}
	if got := b.pg.Query(t,
		`SELECT count(*) FROM cdc_relay_journal JOIN before USING (event_id, topic, partition, "offset")`); got != "991" {
		t.Errorf("events that the journal has where it had them: got %s, want the 991 others", got)
	}

	refuse.Store(true)
	b.waitExecuted(b.ask(store.RequestRepublish, store.Filter{IDs: b.idsOf("9")}))
	b.waitDead(1)
	b.waitRecorded(999)
	refuse.Store(false)
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	b.waitRecorded(1000)

	if asked := b.waitExecuted(b.ask(store.RequestRepublish, store.Filter{All: true})); !strings.Contains(asked.Error,
		"by ids") {
		t.Errorf("a request for everything: got %q, want it refused", asked.Error)
	}
	mustStop(t, stop)
}
