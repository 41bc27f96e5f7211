package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// giveUp makes a parked event a dead letter, whatever that means for others.
func giveUp(t *testing.T, s *store.Store, d store.Dead) error {
	t.Helper()
	_, err := s.GiveUp(t.Context(), d)
	return err
}

// stops is dead letter n of key k as one that dies again in a replay.
func stops(n int) store.Dead {
	d := deadAt(n, "k")
	d.Stops = true
	return d
}

// became says what became of a replay: "2 parked", "1 died again", sorted.
func became(t *testing.T, s *store.Store, id int64) string {
	t.Helper()
	r, err := s.Request(t.Context(), id)
	must(t, "read the request", err)
	must(t, "look up its outcomes", s.Outcomes(t.Context(), r))
	var list []string
	for _, o := range r.Outcomes {
		list = append(list, fmt.Sprintf("%d %s %s", o.Events, o.State, o.Code))
	}
	slices.Sort(list)
	return fmt.Sprint(list, " waiting ", r.Waiting)
}

// parkedPlaces are the places of what is parked.
const parkedPlaces = `SELECT coalesce(string_agg(position_order::text, ' ' ORDER BY position_order), '')
 FROM cdc_relay_parked`

// Breaks caught: dead letters of a key that are published though the one in front of them, replayed with them, died
// again; one of another key, without a key, in front of it, or that is published once more and no dead letter, taken
// back with them; one that is taken back and lost; an outcome that says of them that they died again; a replay that is
// begun again after a crash and sends them after all; an outbox row that goes on saying that its event is tried
// again. Seen to fail with nothing taken back, with what rows show left as it was, with the place, the key and
// the dead letter not asked for, and with the letters of the request taken again.
func TestReplayedDeadLettersStayBehindOneThatDiesAgain(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"), deadAt(2, "k"), deadAt(3, "k"), deadAt(4, "k"), deadAt(5, "other"), deadAt(6, ""))
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	step, err := s.ReplayDead(t.Context(), r, store.DeadCursor{}, 10)
	if must(t, "replay", err); step.Parked != 6 {
		t.Fatalf("parked: got %d, want 6", step.Parked)
	}
	pg.Exec(t, `INSERT INTO cdc_relay_parked SELECT p.* FROM cdc_relay_parked o,
 jsonb_populate_record(o, jsonb_build_object('event_id', '`+uuid(7)+`', 'position_order', 7)) p
 WHERE o.position_order = 4`) // it is published once more, and no dead letter
	pg.Exec(t, `UPDATE outbox_events_dlq SET shown_at = dead_at`)
	behind, err := s.GiveUp(t.Context(), stops(2))
	if must(t, "give up", err); behind != 2 || pg.Query(t, parkedPlaces) != "1 5 6 7" {
		t.Errorf("after 2 died again: got %d taken back, parked %s; want 2, parked 1 5 6 7", behind,
			pg.Query(t, parkedPlaces))
	}
	if got := pg.Query(t, `SELECT string_agg(position_order::text, ' ' ORDER BY position_order) FROM outbox_events_dlq
 WHERE shown_at IS NULL`); got != "3 4" {
		t.Errorf("to be shown as dead in their rows again: got %s, want 3 4", got)
	}
	if got, want := became(t, s, r.ID), "[1 died again C 2 stayed behind  3 parked ] waiting 4"; got != want {
		t.Errorf("the replay: got %s, want %s", got, want)
	}
	if step, err = s.ReplayDead(t.Context(), r, store.DeadCursor{}, 10); err != nil || step.Seen != 0 {
		t.Errorf("the replay, begun anew: got %d, %v; want nothing more", step.Seen, err)
	}
	must(t, "finish", s.FinishRequest(t.Context(), r.ID, ""))
	if n := replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{All: true}, "bob", ""), 10); n != 3 {
		t.Errorf("the next replay parked %d, want the one that died again and the two behind it", n)
	}
	if got := pg.Query(t, parkedPlaces); got != "1 2 3 4 5 6 7" {
		t.Errorf("parked: got %s, want all", got)
	}
	holds := deadAt(1, "k")
	holds.Holds = true // what is behind it waits in the table
	if behind, err = s.GiveUp(t.Context(), holds); err != nil || behind != 0 {
		t.Errorf("one that holds its key: got %d taken back, %v; want none", behind, err)
	}
}

// Break caught: a replay in portions that publishes the followers of one that has died again before their portion came;
// one that leaves out what a person has decided to give up. Seen to fail with the dead of the request not asked for,
// and with discarded ones counted among them.
func TestLaterPortionsOfAReplayStayBehindOneThatDiedAgain(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"), deadAt(2, "other"), deadAt(3, "k"), deadAt(4, "other"), deadAt(5, "k"))
	r := ask(t, s, store.RequestReplay, store.Filter{All: true}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	step, err := s.ReplayDead(t.Context(), r, store.DeadCursor{}, 2)
	must(t, "replay", err)
	must(t, "give up", giveUp(t, s, stops(1)))
	step, err = s.ReplayDead(t.Context(), r, step.Next, 2)
	if must(t, "replay", err); step.Seen != 2 || step.Parked != 1 || pg.Query(t, parkedPlaces) != "2 4" {
		t.Errorf("the next portion: got %d seen, %d parked, parked %s; want 2, 1, parked 2 4", step.Seen, step.Parked,
			pg.Query(t, parkedPlaces))
	}
	pg.Exec(t, `UPDATE outbox_events_dlq SET discarded_at = now(), resolved_by = 'eve' WHERE position_order = 1`)
	step, err = s.ReplayDead(t.Context(), r, step.Next, 2)
	if must(t, "replay", err); step.Seen != 1 || step.Parked != 1 {
		t.Errorf("behind one that was discarded: got %d seen, %d parked, want 1 each", step.Seen, step.Parked)
	}
	if got, want := became(t, s, r.ID), "[1 discarded C 1 stayed behind  3 parked ] waiting 3"; got != want {
		t.Errorf("the replay: got %s, want %s", got, want)
	}
}
