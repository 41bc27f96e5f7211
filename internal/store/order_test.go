package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// places is how many places spread has: one for each mixture of two epochs, two kinds, two orders and two indexes.
const places = 16

// spread is the i-th place in the order of a queue. Each part of a place decides somewhere, against those after it.
func spread(i int) outbox.Position {
	return outbox.Position{Epoch: int64(1 + i>>3), Table: i>>2&1 == 0, Order: uint64(1 + i>>1&1), Index: uint32(i & 1)}
}

// scattered is the number of the event at the i-th place: the order of the ids is not that of the places.
func scattered(i int) int { return 1 + i*7%places }

// mixed lists 0…places-1 in an order in which nothing comes where it belongs.
func mixed() (list []int) {
	for j := range places {
		list = append(list, (3+j*5)%places)
	}
	return list
}

// Break caught: a part of a place that does not count where the order of a queue is asked for. Seen to fail with
// each of the four keys of the queue's order turned round, in the portions, in the heads that are woken, in the list
// of parked keys and in what find says is in front; and with no limit to a portion.
func TestEachPartOfAPlaceDecidesTheQueue(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	var events []store.Parked
	for _, i := range mixed() {
		p := parkedAt(scattered(i), "k", store.NotDue)
		p.Event.Position = spread(i)
		events = append(events, p)
	}
	parkAll(t, s, events)
	var want []string
	for i := range places {
		want = append(want, fmt.Sprintf("%x", scattered(i)))
	}
	lane := store.Lane{Topic: "t", Key: []byte("k")}
	for _, limit := range []int{places, 5} {
		portions, err := s.Portions(t.Context(), []store.Ask{{Lane: lane}}, limit, 1<<20)
		must(t, "read the lane", err)
		if got, want := rowIDs(portions[0].Rows), strings.Join(want[:limit], " "); got != want {
			t.Errorf("portion of %d: got %s, want %s", limit, got, want)
		}
	}
	first := uuid(scattered(0))
	keys, err := s.ParkedKeys(t.Context(), store.Filter{}, "", 10)
	must(t, "list parked keys", err)
	if len(keys.Items) != 1 || keys.Items[0].ID != first || keys.Items[0].Events != places {
		t.Errorf("parked keys: got %+v, want one with %d events and %s in front", keys.Items, places, first)
	}
	found, err := s.Find(t.Context(), []string{uuid(scattered(places - 1))})
	must(t, "find the last", err)
	if p := found[0].Parked; p == nil || p.Behind == nil || *p.Behind != first || p.Before != places-1 {
		t.Errorf("find of the last: got %+v, want it behind %d, of which %s is the first", p, places-1, first)
	}
	must(t, "wake the heads", s.WakeHeads(t.Context()))
	if got := pg.Query(t, `SELECT string_agg(event_id::text, ' ') FROM cdc_relay_parked
 WHERE next_retry_at <= now()`); got !=
		first {
		t.Errorf("woken: got %s, want %s", got, first)
	}
}

// Break caught: a part of a place that does not count in the order of a replay, whose portions then leave letters
// out. Seen to fail with each key of the order of Desk.step turned round, the number of the letter among them, and
// with no limit to a portion.
func TestEachPartOfAPlaceDecidesTheReplay(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	for _, i := range mixed() {
		d := deadAt(scattered(i), "k")
		d.Event.Position = spread(i)
		bury(t, s, d)
		if i%5 == 0 { // another one at the same place, as rows of two partitions may have
			d := deadAt(100+i, "l")
			d.Event.Position = spread(i)
			bury(t, s, d)
		}
	}
	var want []string
	for i := range places {
		want = append(want, spread(i).String())
		if i%5 == 0 {
			want = append(want, spread(i).String())
		}
	}
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	var at store.DeadCursor
	var got []string
	for range 2 * places {
		step, err := s.ReplayDead(t.Context(), r, at, 1)
		must(t, "replay", err)
		if step.Seen > 1 {
			t.Fatalf("a portion of 1 had %d letters", step.Seen)
		}
		if step.Seen == 0 {
			break
		}
		at = step.Next
		got = append(got, at.Position.String())
	}
	if got, want := strings.Join(got, ", "), strings.Join(want, ", "); got != want {
		t.Errorf("replayed: got\n%s\nwant\n%s", got, want)
	}
}

// Break caught: a list of rows that gives what is parked, or dead, places in another order than it had. Seen to fail
// with each of the four keys of the lane's order turned round, and with that of the new places.
func TestEachPartOfAPlaceDecidesWhereAListPutsAnEvent(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	for _, i := range mixed() {
		if i%3 == 0 {
			d := deadAt(scattered(i), "k")
			d.Event.Position = spread(i)
			bury(t, s, d)
			continue
		}
		p := parkedAt(scattered(i), "k", 0)
		p.Event.Position = spread(i)
		parkAll(t, s, []store.Parked{p})
	}
	var want []string
	for i := range places {
		want = append(want, uuid(scattered(i)))
	}
	insertEvents(t, pg, scattered(6), 1) // what was in front of it, and behind, stays so
	listRows(t, s)
	if got, want := pg.Query(t, `SELECT string_agg(id::text, ' ' ORDER BY place) FROM (
 SELECT event_id AS id, position_order AS place FROM cdc_relay_parked
 UNION ALL SELECT original_id, position_order FROM outbox_events_dlq) x`), strings.Join(want, " "); got != want {
		t.Errorf("places: got\n%s\nwant\n%s", got, want)
	}
}
