//go:build linux

package replication

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// preset gives the database a setting of its own, for sessions that begin later.
func (f *fixture) preset(setting, value string) {
	f.t.Helper()
	f.exec("ALTER DATABASE postgres SET " + setting + " = '" + value + "'")
	f.t.Cleanup(func() { f.exec("ALTER DATABASE postgres RESET " + setting) })
}

// Breaks it catches: a setting of a role or a database that changes the stream, ends it, or hides what the server says
// about it. Seen to fail with client_min_messages, and with transaction_timeout, left as they are.
func TestSettingsOfTheStreamArePinned(t *testing.T) {
	f := newFixture(t)
	for _, row := range []struct {
		setting, preset, want string
		since                 int // version of Postgres that knows it
	}{
		{"client_min_messages", "error", "log", 0},
		{"statement_timeout", "1h", "0", 0},
		{"lock_timeout", "1h", "0", 0},
		{"idle_session_timeout", "1h", "0", 0},
		{"transaction_timeout", "1h", "0", 17},
		{"datestyle", "SQL, DMY", "ISO, YMD", 0},
		{"bytea_output", "escape", "hex", 0},
	} {
		if server.Version() < row.since {
			continue
		}
		f.preset(row.setting, row.preset)
		if got, err := Setting(t.Context(), f.c, row.setting); err != nil || got != row.want {
			t.Errorf("%s: got %q, %v; want %q", row.setting, got, err, row.want)
		}
	}
}

// Break it catches: a transaction that is cut off while it is sent, at each attempt again: a transaction_timeout counts
// while the server decodes. Seen to fail, on PostgreSQL 18, with transaction_timeout left as it is.
func TestTransactionTimeoutEndsNoStream(t *testing.T) {
	f := newFixture(t)
	if server.Version() < transactionTimeoutVersion {
		t.Skipf("SKIPPED: PostgreSQL %d has no transaction_timeout; CDC_RELAY_TEST_POSTGRES_VERSION=18 has",
			server.Version())
	}
	const timeout = 300 * time.Millisecond
	f.preset("transaction_timeout", timeout.String())
	r := f.open()
	f.exec("INSERT INTO box SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i") // more than sockets hold
	first := <-r.Batches()
	<-time.After(4 * timeout) // the server is in the middle of the transaction, for longer than the time-out
	count := 0
	for _, m := range first.Messages {
		if !m.Keepalive && m.Data[0] == 'I' {
			count++
		}
	}
	r.confirmAll(t, 20000-count)
	r.finish(t)
}

// The role hides warnings, and what the server tells its log is asked for. Breaks it catches: a missing publication
// that is not heard of, which from PostgreSQL 18 is silent loss; lines of the server's log given out as warnings. Seen
// to fail, on PostgreSQL 18, with client_min_messages left as it is, and with the log's lines given out.
func TestMissingPublicationIsToldToARoleThatHidesWarnings(t *testing.T) {
	f := newFixture(t)
	f.preset("client_min_messages", "error")
	var mu sync.Mutex
	var said []NoticeText
	f.c.OnNotice = func(n NoticeText) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, n)
	}
	f.exec("DROP PUBLICATION " + pgx.Identifier{f.c.Publication}.Sanitize())
	r := f.open()
	f.exec("INSERT INTO box VALUES (1, 'x')")
	go func() {
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	if err := r.ended(t); !isA[*PublicationMissingError](err) {
		t.Errorf("got %v, want a PublicationMissingError", err)
	}
	other := f.c
	other.Slot += "_log" // its creation is logged, with the consistent point that it finds
	if _, err := CreateSlot(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := DropSlotWhenFree(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, n := range said {
		if strings.EqualFold(n.Severity, logSeverity) {
			t.Errorf("got the notice %+v, want none of the server's log", n)
		}
	}
}
