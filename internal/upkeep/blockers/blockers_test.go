package blockers

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Breaks it catches: a prepared transaction that its coordinator has forgotten, and that no one names while rows wait
// for it; one that is logged at each look, or told of when it is over. Seen to fail with nothing logged, with each
// look logged, and with what was found before kept.
func TestForgottenPreparedTransactionIsToldOfUntilItEnds(t *testing.T) {
	pg := harness.Postgres(t)
	s, err := store.Open(t.Context(), store.Config{URL: pg.URL, Slot: "s", Table: "outbox_events"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	var log bytes.Buffer
	w := New(0, zerolog.New(&log))
	const end = "ROLLBACK PREPARED 'forgotten';"
	look := func(want int) {
		t.Helper()
		if err := w.Look(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		told := strings.Count(strings.Join(w.Found(), "\n"), end)
		if age, known := w.Oldest(); told != want || !known || (age > 0) != (len(w.Found()) > 0) {
			t.Errorf("got %q and an age of %v, known %t, want %d with %s", w.Found(), age, known, want, end)
		}
	}
	look(0)
	conn := pg.Connect(t)
	const forget = "BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'"
	if _, err := conn.Exec(t.Context(), forget); err != nil {
		t.Fatal(err)
	}
	look(1)
	look(1)
	if n := strings.Count(log.String(), end); n != 1 {
		t.Errorf("the log names it %d times, want once:\n%s", n, log.String())
	}
	pg.Exec(t, "ROLLBACK PREPARED 'forgotten'")
	look(0)
}

// Break it catches: a look at each step of a watch that has many a second. Seen to fail with the time not kept.
func TestLooksAreApart(t *testing.T) {
	w := New(time.Hour, zerolog.Nop())
	if !w.Due() || w.Due() {
		t.Error("two looks at once: want the first only")
	}
}

// Breaks it catches: a horizon behind the begin of a transaction whose rows are then missed. Seen to fail with a
// begin that cannot be seen taken for none.
func TestRowsAreLookedForFromBeforeTheOldestBegin(t *testing.T) {
	hour := time.Now().Add(-time.Hour)
	if got := Begin([]store.Blocker{{Since: hour}, {Since: hour.Add(time.Minute)}}, time.Minute); !got.Equal(hour) {
		t.Errorf("got %v, want the oldest, %v", got, hour)
	}
	for name, hidden := range map[string]time.Time{"unseen": {}, "too young": time.Now()} {
		if got := Begin([]store.Blocker{{Since: hidden}}, time.Minute); time.Since(got) < hiddenSince ||
			time.Since(got) > 2*hiddenSince {
			t.Errorf("%s: got %v, want a day ago", name, got)
		}
	}
}

// quiet is a server without old transactions.
type quiet struct{}

func (quiet) OldTransactions(context.Context, time.Duration) ([]store.Blocker, error) {
	return nil, nil
}

// Break it catches: no transaction told of where no one has looked, or not lately.
func TestNothingIsKnownLongAfterALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Hour, zerolog.Nop())
		want := func(when string, want bool) {
			t.Helper()
			if _, known := w.Oldest(); known != want {
				t.Errorf("%s: known %t, want %t", when, known, want)
			}
		}
		want("before the first look", false)
		if err := w.Look(t.Context(), quiet{}); err != nil {
			t.Fatal(err)
		}
		want("after a look", true)
		time.Sleep(every)
		want("until the next look", true)
		time.Sleep(knownFor)
		want("long after it", false)
	})
}
