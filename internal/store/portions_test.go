package store_test

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks caught: lanes that are mixed up or read in another order than their queue's; more than was asked for; a cut
// that is not told from an end, or a lane that was not read from an empty one; a dead letter that does not hold what is
// behind it, or holds what is in front of it; a lane that is read on from elsewhere than was asked for (seen to fail
// with >= for >).
func TestPortionsReadManyLanesInQueueOrder(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.HoldDead = true
	s := owner(t, pg, c)
	pg.Exec(t, fmt.Sprintf(
		`INSERT INTO cdc_relay_parked (source, event_id, topic, key, epoch, from_stream, position_order, position_index,
 payload, error_class)
		SELECT (SELECT source FROM cdc_relay_state WHERE slot = '%s'), gen_random_uuid(), 't',
		convert_to('k' || i %% 3, 'UTF8'), 0, true, 1, 1000 - i, repeat('x', 100)::bytea, 'blocked'
		FROM generate_series(1, 30) i`, c.Slot))
	lane := func(key string) store.Lane { return store.Lane{Topic: "t", Key: []byte(key)} }
	lanes := []store.Lane{lane("k1"), lane("none"), lane("k0"), lane("k2")}
	read := func(lanes []store.Lane, limit, bytes int) []store.Portion {
		t.Helper()
		asks := make([]store.Ask, len(lanes))
		for i, l := range lanes {
			asks[i].Lane = l
		}
		p, err := s.Portions(t.Context(), asks, limit, bytes)
		must(t, "portions", err)
		for _, portion := range p {
			for i, row := range portion.Rows {
				if i > 0 && row.Event.Position.Compare(portion.Rows[i-1].Event.Position) <= 0 {
					t.Errorf("lane %s: %v comes after %v", portion.Lane.Key, row.Event.Position, portion.Rows[i-1].Event.Position)
				}
			}
		}
		return p
	}
	said := func(p []store.Portion) (text string) {
		for _, portion := range p {
			text += fmt.Sprintf("%s %d %t %t; ", portion.Lane.Key, len(portion.Rows), portion.More, portion.Held)
		}
		return text
	}
	for _, row := range []struct {
		limit, bytes int
		want         string
	}{
		{100, 1 << 20, "k1 10 false false; none 0 false false; k0 10 false false; k2 10 false false; "},
		{4, 1 << 20, "k1 4 true false; none 0 false false; k0 4 true false; k2 4 true false; "},
		{1, 1, "k1 1 true false; "},
		{100, 12 * 300, "k1 10 false false; none 0 false false; k0 2 true false; "},
	} {
		if got := said(read(lanes, row.limit, row.bytes)); got != row.want {
			t.Errorf("at most %d rows and %d bytes: got %s, want %s", row.limit, row.bytes, got, row.want)
		}
	}
	rest, err := s.Portions(t.Context(),
		[]store.Ask{{Lane: lane("k1"), After: &outbox.Position{Order: 1, Index: 987}}, {Lane: lane("k2")}}, 100, 1<<20)
	must(t, "portions from behind an event", err)
	if got, want := said(rest), "k1 4 false false; k2 10 false false; "; got != want {
		t.Errorf("from behind the sixth of k1: got %s, want %s", got, want)
	}
	dead := func(key string, index int) {
		pg.Exec(t, fmt.Sprintf(
			`INSERT INTO outbox_events_dlq (source, original_id, topic, key, position, epoch, from_stream, position_order,
 position_index, attempts, error_class, error_code, last_error, holds)
			SELECT source, gen_random_uuid(), 't', '%s', '', 0, true, 1, %d, 1, 'permanent', 'C', 'why', true
			FROM cdc_relay_state WHERE slot = '%s'`, key, index, c.Slot))
	}
	dead("k1", 0)
	dead("none", 0)
	dead("k0", 986)
	if got, want := said(read(lanes, 100, 1<<20)),
		"k1 0 false true; none 0 false true; k0 6 false false; k2 10 false false; "; got != want {
		t.Errorf("with dead letters: got %s, want %s", got, want)
	}
	pg.Exec(t, "UPDATE cdc_relay_parked SET next_retry_at = now()")
	due, _, err := s.DueLanes(t.Context(), 100, nil)
	must(t, "due lanes", err)
	counts := map[string]int{}
	for _, l := range due {
		counts[string(l.Key)]++
	}
	if counts["k1"] != 0 || counts["k0"] != 6 || counts["k2"] != 10 {
		t.Errorf("due: got %v, want k0 6 times, k2 10 times", counts)
	}
	all, n, err := s.ParkedLanes(t.Context())
	must(t, "parked lanes", err)
	if held := len(all); n != 30 || held < 4 {
		t.Errorf("lanes to hold: got %d of %d events, want k0, k1, k2 and none, of 30", held, n)
	}
}
