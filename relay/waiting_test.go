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
