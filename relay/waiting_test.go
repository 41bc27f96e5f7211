package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: the creation of a slot that hangs behind someone's transaction, and no one knows behind whose;
// one that does not go on by itself. Seen to fail with the warning left out.
func TestSlotCreationSaysForWhomItWaits(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	conn := b.pg.Connect(t)
	var pid int
	if err := conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; CREATE TABLE held (n int)"); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), relay.StoreConfig(b.c))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, ended := &harness.Log{}, make(chan error, 1)
	go func() {
		_, err := relay.NewSetup(b.c, s, zerolog.New(log)).Prepare(context.Background())
		ended <- err
	}()
	harness.Eventually(t, 25*time.Second, "the log names the backend", func(context.Context) string {
		if text := log.String(); !strings.Contains(text, fmt.Sprintf("pg_terminate_backend(%d)", pid)) {
			return "it says: " + text
		}
		return ""
	})
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("prepare after the transaction's end: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the slot was not created within a minute after the transaction's end")
	}
}

// The slot is lost while the relay is paused, and what no one has published is an hour old. Break it catches: a status
// that counts from the new slot's position, and so says that the oldest event is some seconds old and nothing waits.
func TestOldestPendingIsThatOfTheTableAfterALostSlot(t *testing.T) {
	t.Parallel()
	const rows, hour = 5, 3600
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitExecuted(b.ask(store.RequestPause, store.Filter{}))
	b.pg.Exec(t, many(1, rows, 3)+"UPDATE outbox_events SET created_at = now() - interval '1 hour';")
	b.dropSlot()
	harness.Eventually(t, bedPatience, "the status tells of the rows", func(context.Context) string {
		st := r.Status()
		if st.Role != relay.RoleCatchUp || st.OldestPending == nil || st.Backlog == nil {
			return fmt.Sprintf("%s, oldest %v, backlog %v", st.Role, st.OldestPending, st.Backlog)
		}
		if *st.OldestPending < hour || *st.OldestPending > 2*hour || *st.Backlog < rows {
			t.Errorf("while catching up: got %v s and a backlog of %d, want an hour and %d", *st.OldestPending,
				*st.Backlog, rows)
		}
		return ""
	})
	b.ask(store.RequestResume, store.Filter{})
	b.waitRecorded(rows)
	harness.Eventually(t, bedPatience, "nothing is pending", func(context.Context) string {
		if age := r.Status().OldestPending; age == nil || *age > hour/2 {
			return fmt.Sprint("oldest ", age)
		}
		return ""
	})
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", rows)
}
