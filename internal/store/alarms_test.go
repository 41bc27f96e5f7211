package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func alarmOf(kind, topic string, at time.Time) store.Alarm {
	return store.Alarm{Kind: kind, Topic: topic, Partition: 3, Text: "why", Repair: "repair", At: at, Count: 2}
}

// Breaks caught: an alarm that is open twice or comes back after a person has looked; one of another slot that is
// listed or acknowledged with it; numbers that do not exist and are passed over. Seen to fail with each of: the
// condition on open alarms left out of the key, the source left out of both statements, and the numbers not compared.
func TestAlarmsStayUntilTheyAreAcknowledged(t *testing.T) {
	pg := harness.Postgres(t)
	s, other := registered(t, usual(t, pg)), registered(t, usual(t, pg))
	first, last := time.Now().Add(-time.Hour).Truncate(time.Microsecond).UTC(), time.Now().Truncate(time.Microsecond).UTC()
	for _, a := range []store.Alarm{alarmOf("k", "t", first), alarmOf("k", "t", last), alarmOf("k", "u", first)} {
		must(t, "raise", s.RaiseAlarm(t.Context(), a))
	}
	must(t, "raise another's", other.RaiseAlarm(t.Context(), alarmOf("k", "t", first)))
	list := func(all bool) []store.Alarm {
		t.Helper()
		list, err := s.Alarms(t.Context(), all)
		must(t, "list", err)
		return list
	}
	want := alarmOf("k", "t", last)
	want.FirstSeen, want.Count = first, 4
	open := list(false)
	if len(open) != 2 {
		t.Fatalf("open: got %+v, want two", open)
	}
	want.ID = open[1].ID
	if diff := cmp.Diff(want, open[1]); diff != "" {
		t.Errorf("the alarm that was raised twice (-want +got):\n%s", diff)
	}
	if _, err := s.AckAlarms(t.Context(), []int64{want.ID, 99}, false, "ann", "seen"); !errors.Is(err, store.ErrNoAlarm) {
		t.Errorf("acknowledge an alarm that does not exist: got %v, want %v", err, store.ErrNoAlarm)
	}
	if n := len(list(false)); n != 2 {
		t.Errorf("open after that: got %d, want 2", n)
	}
	acked, err := s.AckAlarms(t.Context(), []int64{want.ID}, false, "ann", "seen")
	if err != nil || fmt.Sprint(acked) != fmt.Sprint([]int64{want.ID}) {
		t.Errorf("acknowledge: got %v, %v", acked, err)
	}
	must(t, "raise it once more", s.RaiseAlarm(t.Context(), alarmOf("k", "t", last)))
	if n := len(list(false)); n != 2 {
		t.Errorf("open after it was raised once more: got %d, want 2", n)
	}
	acked, err = s.AckAlarms(t.Context(), nil, true, "bob", "")
	if err != nil || len(acked) != 2 || len(list(false)) != 0 {
		t.Errorf("acknowledge all: got %v, %v, and %d open", acked, err, len(list(false)))
	}
	all := list(true)
	if len(all) != 3 || all[2].AckedBy != "ann" || all[0].AckedBy != "bob" || all[0].AckedAt == nil ||
		all[2].AckedNote != "seen" || all[0].AckedNote != "" {
		t.Errorf("all: got %+v, want three, by ann with a note and by bob", all)
	}
	if n := pg.Query(t, `SELECT count(*) FROM cdc_relay_alarms WHERE acknowledged_at IS NULL`); n != "1" {
		t.Errorf("open of the other slot: got %s, want 1", n)
	}
}
