package restart

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Breaks caught: a relay that has read its stream, and found nothing wrong or streamed for a while, and yet waits for
// as long as after many failures; or that looks again late whether a halt is repaired since it has been halted before,
// in another week. Seen to fail with ErrSounded taken for another failure, without the case of an active relay,
// without the one of a long session, and with halts that only another end resets.
func TestThePauseBeforeASessionIsShortWhereTheLastReadItsStream(t *testing.T) {
	failed := errors.New("connection refused")
	const reconnect, probe = 100 * time.Millisecond, 2 * time.Second
	for _, row := range []struct {
		name     string
		before   Failures
		lasted   time.Duration
		streamed bool
		err      error
		halt     bool
		want     time.Duration // without jitter
	}{
		{"never streamed", Failures{3, 0}, time.Second, false, failed, false, 8 * reconnect},
		{"streamed for a second", Failures{8, 0}, time.Second, true, failed, false, 4 * reconnect},
		{"streamed, the first failure", Failures{}, time.Second, true, failed, false, reconnect},
		{"read ahead", Failures{8, 8}, time.Second, false, ErrSounded, false, 4 * reconnect},
		{"streamed for long", Failures{8, 0}, time.Minute, true, failed, false, reconnect},
		{"halted again", Failures{2, 2}, time.Second, false, failed, true, 4 * probe},
		{"streamed for a second, then a halt", Failures{8, 8}, time.Second, true, failed, true, 4 * probe},
		{"streamed for long, then a halt", Failures{8, 8}, time.Minute, true, failed, true, probe},
		{"not halted any more", Failures{2, 2}, time.Second, false, failed, false, 4 * reconnect},
	} {
		f := row.before
		if got := f.Next(row.lasted, row.streamed, row.err, row.halt); got < row.want || got > row.want*5/4 {
			t.Errorf("%s: got a pause of %v, want about %v", row.name, got, row.want)
		}
		if !row.halt && f.Halts != 0 {
			t.Errorf("%s: got %d halts in a row, want none", row.name, f.Halts)
		}
	}
}

// Breaks it catches: a session that ended said with one sentence for every cause ("stream ended; starting a new
// session"), or a refused statement called a stream that broke off. Seen to fail with each case left out of the code.
func TestEndOfASessionIsSaidByItsCause(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&login.Refusal{Reason: "away", Remedy: "start Postgres"}, "If it stays so: start Postgres"},
		{&replication.SilentError{}, "has not answered for wal_sender_timeout"},
		{replication.ErrServerEnded, "the server has ended the stream, as at a shutdown"},
		{&pgconn.PgError{Code: "57P01"}, "the server or an administrator ended the connection"},
		{&pgconn.PgError{Code: "42501"}, "Postgres refused a statement; trying again. If it persists, cdc-relay check"},
		{io.ErrUnexpectedEOF, "the connection to Postgres broke off"},
		{bootstrap.ErrSlotWaits, "the slot cannot be created yet"},
		{ErrTakenOver, "another relay has the slot"},
		{store.ErrFenced, "another relay has the slot"},
		{ErrSpools, "a new session stores them in cdc_relay_spool"},
		{ErrNotStreaming, "the session ended"},
		{ErrSounded, "the session ended"},
	} {
		if got := Said(fmt.Errorf("take over: %w", row.err)); !strings.Contains(got, row.want) {
			t.Errorf("%T: got %q, want %q in it", row.err, got, row.want)
		}
	}
}
