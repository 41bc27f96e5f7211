package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// deadAt is the dead letter of event n of a lane, at WAL position n.
func deadAt(n int, key string) store.Dead {
	d := dead(n)
	d.Event.Position = outbox.Position{Epoch: 1, Order: uint64(n), Index: 3}
	d.Event.Payload, d.Event.Headers, d.Event.EventType = []byte(fmt.Sprintf(`{"n": %d}`, n)), []byte(`{"h": "v"}`),
		[]byte("made")
	d.Event.CreatedAt = []byte("2026-11-21 16:36:32.123456+00")
	if key != "" {
		d.Key = []byte(key)
	}
	return d
}

func bury(t *testing.T, s *store.Store, letters ...store.Dead) {
	t.Helper()
	must(t, "settle dead letters", s.Settle(t.Context(), nil, letters))
}

// ask writes a request and gives it back as the executor finds it.
func ask(t *testing.T, s *store.Store, kind string, f store.Filter, who, note string) *store.Request {
	t.Helper()
	id, err := s.AddRequest(t.Context(), kind, f, who, note)
	must(t, "ask", err)
	r, err := s.NextRequest(t.Context())
	must(t, "look for requests", err)
	if r == nil || r.ID != id {
		t.Fatalf("next request: got %+v, want number %d", r, id)
	}
	return r
}

// replayAll runs a replay to its end in portions of the size and says which ids each parked, by their last digits.
func replayAll(t *testing.T, s *store.Store, r *store.Request, portion int) (parked int64) {
	t.Helper()
	must(t, "start", s.StartRequest(t.Context(), r))
	var at store.DeadCursor
	for range 100 {
		step, err := s.ReplayDead(t.Context(), r, at, portion)
		must(t, "replay", err)
		if step.Seen == 0 {
			must(t, "finish", s.FinishRequest(t.Context(), r.ID, ""))
			return parked
		}
		parked, at = parked+step.Parked, step.Next
	}
	t.Fatal("the replay does not end")
	return 0
}

// Breaks caught: an event that comes back with other bytes or at another place than it had (payload, headers, time,
// position, key); attempts that are not counted again; a replay that does not say that it is one. Seen to fail with
// attempts kept.
func TestReplayParksTheEventAsItWas(t *testing.T) {
	for _, payloadType := range []string{"jsonb", "bytea", "text"} {
		t.Run(payloadType, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text,
 event_type text, payload `+payloadType+`, headers jsonb, created_at timestamptz, published_at timestamptz)`)
			s := owner(t, pg, usual(t, pg))
			want := deadAt(7, "k")
			want.Attempts = 4
			none := deadAt(8, "k")
			none.Event.Payload, none.Event.Headers, none.Event.CreatedAt = nil, nil, nil
			bury(t, s, want, none)
			if n := replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", ""), 10); n != 2 {
				t.Fatalf("parked: got %d, want 2", n)
			}
			rows, err := laneRows(t, s, 10)
			must(t, "read the lane", err)
			if got := rowIDs(rows); got != "7 8" {
				t.Fatalf("lane: got %q, want 7 8", got)
			}
			got, e := rows[0].Event, want.Event
			if string(got.Payload) != string(e.Payload) || string(got.Headers) != string(e.Headers) ||
				string(got.CreatedAt) != string(e.CreatedAt) ||
				string(got.EventType) != "made" || got.Position != e.Position || rows[0].Attempts != 0 || !rows[0].Replay ||
				!rows[0].Due {
				t.Errorf("got %s %s %s %s %v, attempts %d, replay %t, due %t", got.Payload, got.Headers, got.CreatedAt,
					got.EventType, got.Position, rows[0].Attempts, rows[0].Replay, rows[0].Due)
			}
			if rows[1].Event.Payload != nil || rows[1].Event.Headers != nil || rows[1].Event.CreatedAt != nil {
				t.Errorf("NULLs came back as %q %q %q", rows[1].Event.Payload, rows[1].Event.Headers, rows[1].Event.CreatedAt)
			}
		})
	}
}

// Breaks caught: portions that skip or repeat a row, or that are not in the order of positions; a replay that takes
// what died after it was asked for; one that is begun again and does something twice; progress that does not say the
// truth. Seen to fail with what died later taken too.
func TestReplayInPortionsIsResumedWhereItWas(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	var letters []store.Dead
	for n := 25; n > 0; n-- { // against the order of positions
		letters = append(letters, deadAt(n, fmt.Sprint("k", n%3)))
	}
	bury(t, s, letters...)
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "again")
	bury(t, s, deadAt(26, "k1"))
	must(t, "start", s.StartRequest(t.Context(), r))
	step, err := s.ReplayDead(t.Context(), r, store.DeadCursor{}, 10)
	must(t, "replay", err)
	if got := pg.Query(t, `SELECT max(position_order) || ' ' || count(*) FROM cdc_relay_parked`); got != "10 10" {
		t.Errorf("after the first portion: got highest and number %s, want 10 10", got)
	}
	_ = step // the process dies, and with it the cursor
	r, err = s.NextRequest(t.Context())
	must(t, "look for requests", err)
	if replayAll(t, s, r, 10); r.Total == nil || *r.Total != 25 {
		t.Errorf("total: got %v, want 25", r.Total)
	}
	if r, err = s.Request(t.Context(), r.ID); err != nil || r.Done != 25 || r.Waiting != 25 || r.FinishedAt == nil ||
		r.StartedAt == nil || r.Who != "ann" || r.Note != "again" {
		t.Errorf("request: got %+v, %v; want 25 done and waiting, finished", r, err)
	}
	if got := pg.Query(t, `SELECT count(*) || ' ' || max(position_order) FROM cdc_relay_parked`); got != "25 25" {
		t.Errorf("parked and the highest: got %s, want 25 25", got)
	}
}

// Breaks caught: a replayed event whose dead letter stays open, or is closed before it is published; one that dies
// again and is lost, or whose dead letter does not say why; a second replay that publishes what the first one did. Seen
// to fail with the dead letter left open.
func TestDeadLetterIsClosedWhenItsEventIsJournaled(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(0, "k"), deadAt(1, "k"), deadAt(2, ""))
	replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(0), uuid(1)}}, "ann", "fixed"), 10)
	state := func() string {
		return pg.Query(t,
			`SELECT string_agg(position_order || coalesce(' by ' || resolved_by || ' ' || note,
 '') || ' ' || (replayed_at IS NOT NULL) || ' ' || attempts || error_code, ', ' ORDER BY position_order)
 FROM outbox_events_dlq`)
	}
	if got, want := state(), "0 false 1C, 1 false 1C, 2 false 1C"; got != want {
		t.Fatalf("while parked: got %q, want %q", got, want)
	}
	must(t, "settle", s.SettleRetried(t.Context(), published(1, uuid)))
	again := dead(1)
	again.Attempts, again.Code = 2, "D"
	must(t, "give up", giveUp(t, s, again))
	if got, want := state(), "0 by ann fixed true 1C, 1 false 3D, 2 false 1C"; got != want {
		t.Fatalf("after one was published and one died again: got %q, want %q", got, want)
	}
	if n := replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{Key: key("k")}, "bob", ""), 10); n != 1 {
		t.Errorf("the second replay parked %d, want the one that died again", n)
	}
}

func key(s string) *string { return &s }

// A relay that lost the slot may have published an event that another one gave up. Break caught: a replay that sends
// it. Seen to fail with the journal not asked.
func TestReplayDoesNotSendWhatTheJournalHas(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(0, "k"))
	must(t, "settle", s.Settle(t.Context(), published(1, uuid), nil))
	if n := replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", ""), 10); n != 0 {
		t.Errorf("parked: got %d, want none", n)
	}
	if got := pg.Query(t, `SELECT replayed_at IS NOT NULL FROM outbox_events_dlq`); got != "true" {
		t.Errorf("closed: got %s, want true", got)
	}
}

// Break caught: a discard without who, why and when; one that takes what is on its way, or what was discarded before.
// Seen to fail with who left out.
func TestDiscardRecordsWhoAndWhy(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "a"), deadAt(2, "b"), deadAt(3, ""))
	replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{Key: key("b")}, "ann", ""), 10)
	r := ask(t, s, store.RequestDiscard, store.Filter{All: true}, "eve", "test data")
	must(t, "start", s.StartRequest(t.Context(), r))
	step, err := s.DiscardDead(t.Context(), r, store.DeadCursor{}, 10)
	must(t, "discard", err)
	if step.Seen != 2 || len(step.Lanes) != 1 || string(step.Lanes[0].Key) != "a" || *r.Total != 2 {
		t.Errorf("got %d discarded of lanes %v, total %d; want 2, lane a", step.Seen, step.Lanes, *r.Total)
	}
	if step, err = s.DiscardDead(t.Context(), r, store.DeadCursor{}, 10); err != nil || step.Seen != 0 {
		t.Errorf("discard again: got %d, %v; want none", step.Seen, err)
	}
	got := pg.Query(t,
		`SELECT string_agg(position_order || resolved_by || note, ' ' ORDER BY position_order) FROM outbox_events_dlq
 WHERE discarded_at IS NOT NULL`)
	if want := "1evetest data 3evetest data"; got != want {
		t.Errorf("discarded: got %q, want %q", got, want)
	}
}

// Breaks caught: a head that is not made due by an event behind it; an event that waits for its topic made due; another
// key that is; a request that never ends because what it tried failed again. Seen to fail with what waits for its topic
// made due.
func TestRetryNowMakesTheHeadsDue(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	parkAll(t, s, []store.Parked{parkedAt(1, "k", time.Hour), parkedAt(2, "k", store.NotDue),
		parkedAt(3, "other", time.Hour),
		parkedAt(4, "well", store.WhenWell), parkedAt(5, "", time.Hour)})
	due := func() string {
		return pg.Query(t,
			`SELECT coalesce(string_agg(position_order::text, ' ' ORDER BY position_order), '') FROM cdc_relay_parked
 WHERE next_retry_at <= now()`)
	}
	retry := func(f store.Filter) (n int64) {
		t.Helper()
		r := ask(t, s, store.RequestRetry, f, "ann", "")
		must(t, "start", s.StartRequest(t.Context(), r))
		n, err := s.RetryNow(t.Context(), r, 10)
		must(t, "retry", err)
		if n > 0 { // as if it failed again
			must(t, "later", s.RetryLater(t.Context(),
				[]store.Attempt{{ID: []byte(uuid(3)), Attempts: 2, RetryIn: time.Hour, Class: outbox.Transient, Text: "again"}}))
		}
		if again, err := s.RetryNow(t.Context(), r, 10); again != 0 || err != nil {
			t.Errorf("the next portion: got %d, %v; want none", again, err)
		}
		must(t, "finish", s.FinishRequest(t.Context(), r.ID, ""))
		return n
	}
	if n := retry(store.Filter{IDs: []string{uuid(2)}}); n != 1 || due() != "1" {
		t.Errorf("by the id of a follower: got %d, due %q; want the head, 1", n, due())
	}
	if n := retry(store.Filter{Key: key("other")}); n != 1 || due() != "1" {
		t.Errorf("by key: got %d, due %q; want 1, and 3 not due because it failed again", n, due())
	}
	if n := retry(store.Filter{All: true}); n != 2 || due() != "1 5" {
		t.Errorf("all: got %d, due %q; want 3 and 5 made due, 3 failed again", n, due())
	}
}

// Breaks caught: requests out of order; a resume behind a long replay; a filter of a newer version that is taken for
// everything; another slot's request. Seen to fail with no precedence for pauses.
func TestNextRequestIsTheOldestButPausesFirst(t *testing.T) {
	pg := harness.Postgres(t)
	s := registered(t, usual(t, pg))
	other := open(t, usual(t, pg))
	ctx := t.Context()
	_, err := other.AddRequest(ctx, store.RequestPause, store.Filter{}, "x", "")
	must(t, "ask another", err)
	// waits for what others decide
	_, err = s.AddRequest(ctx, store.RequestRepublish, store.Filter{IDs: []string{uuid(1)}}, "a", "")
	must(t, "ask", err)
	first := ask(t, s, store.RequestReplay, store.Filter{All: true}, "a", "")
	_, err = s.AddRequest(ctx, store.RequestDiscard, store.Filter{All: true}, "a", "")
	must(t, "ask", err)
	ask(t, s, store.RequestPause, store.Filter{}, "b", "")
	pg.Exec(t, `UPDATE cdc_relay_request SET finished_at = now() WHERE kind = 'pause'; UPDATE cdc_relay_request
 SET filter = '{"shape": "round"}' WHERE kind = 'replay'`)
	r, err := s.NextRequest(ctx)
	if err != nil || r == nil || r.ID != first.ID || r.Unreadable == nil {
		t.Errorf("got %+v, %v; want the replay with a filter that cannot be read", r, err)
	}
	if _, err := s.AddRequest(ctx, store.RequestRetry, store.Filter{IDs: []string{"x"}}, "a", ""); !errors.Is(err,
		store.ErrFilter) {
		t.Errorf("an id that is no uuid: got %v, want ErrFilter", err)
	}
	if _, err := other.Request(ctx, first.ID); !errors.Is(err, store.ErrNoRequest) {
		t.Errorf("another slot's request: got %v, want ErrNoRequest", err)
	}
}

// Break caught: a pause that a restart forgets, that forgets who, or that a second one moves. Seen to fail with a
// second pause that moves it, with the state of any slot read, and with a request that is finished again.
func TestPauseIsKeptWithWhoAndWhen(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	pg.Exec(t, neighbourSQL)
	pg.Exec(t, `UPDATE cdc_relay_state SET slot = slot WHERE slot <> 'neighbour'`) // it lies behind the neighbour's now
	set := func(kind, who string) *store.Pause {
		t.Helper()
		p, err := s.SetPause(t.Context(), ask(t, s, kind, store.Filter{}, who, "why"))
		must(t, kind, err)
		kept, err := s.Paused(t.Context())
		must(t, "read", err)
		if (p == nil) != (kept == nil) || p != nil && (!p.Since.Equal(kept.Since) || p.By != kept.By) {
			t.Errorf("%s: said %+v, kept %+v", kind, p, kept)
		}
		return kept
	}
	if p := set(store.RequestPause, "ann"); p == nil || p.By != "ann" || p.Note != "why" ||
		time.Since(p.Since) > time.Minute {
		t.Errorf("paused: got %+v, want by ann, just now", p)
	}
	if p := set(store.RequestPause, "bob"); p == nil || p.By != "ann" {
		t.Errorf("paused twice: got %+v, want it since the first", p)
	}
	if p := set(store.RequestResume, "bob"); p != nil {
		t.Errorf("resumed: got %+v, want nil", p)
	}
	if got := pg.Query(t, `SELECT paused_by FROM cdc_relay_state WHERE slot = 'neighbour'`); got != "bob" {
		t.Errorf("the neighbour's pause: got %s, want bob's as before", got)
	}
	pg.Exec(t, `UPDATE cdc_relay_request SET finished_at = 'epoch' WHERE slot <> 'neighbour';
UPDATE cdc_relay_state SET paused_at = NULL WHERE slot = 'neighbour'`)
	r := ask(t, s, store.RequestPause, store.Filter{}, "ann", "")
	r.ID--
	_, err := s.SetPause(t.Context(), r)
	must(t, "pause again for a request that is finished", err)
	if got := pg.Query(t, `SELECT count(*) FROM cdc_relay_request
 WHERE finished_at > 'epoch' AND slot <> 'neighbour'`); got != "0" {
		t.Errorf("requests that were finished again: got %s, want 0", got)
	}
	if got := pg.Query(t, `SELECT paused_at FROM cdc_relay_state WHERE slot = 'neighbour'`); got != "" {
		t.Errorf("the neighbour is paused, since %s", got)
	}
}

// Break caught: work for a request that a relay does which has lost the slot. Seen to fail with the epoch not asked at
// the start.
func TestRequestsAreExecutedByTheOwnerOnly(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"))
	parkAll(t, s, []store.Parked{parkedAt(2, "k", time.Hour)})
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	retry := *r
	retry.Kind = store.RequestRetry
	pg.Exec(t, "UPDATE cdc_relay_epoch SET epoch = epoch + 1")
	ctx := t.Context()
	_, replaying := s.ReplayDead(ctx, r, store.DeadCursor{}, 10)
	_, discarding := s.DiscardDead(ctx, r, store.DeadCursor{}, 10)
	_, retrying := s.RetryNow(ctx, &retry, 10)
	_, pausing := s.SetPause(ctx, r)
	for what, err := range map[string]error{"start": s.StartRequest(ctx, r), "replay": replaying, "discard": discarding,
		"retry": retrying,
		"pause": pausing, "finish": s.FinishRequest(ctx, r.ID, "")} {
		if !errors.Is(err, store.ErrFenced) {
			t.Errorf("%s after a takeover: got %v, want it fenced", what, err)
		}
	}
}
