package halt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/login"
	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Breaks it catches: an error that loses events when it is tried again, one that a new session cures and that halts
// all the same, a halt that hides its cause, has a code without a series, or leaves out what is at risk or what to do.
// Seen to fail with the case of a missing publication left out, and with a cause that is dropped.
func TestHaltsAreExactlyWhatNoNewSessionCures(t *testing.T) {
	column := &decoder.ColumnError{Column: "payload"}
	for _, row := range []struct {
		err  error
		code string // empty: no halt
	}{
		{nil, ""},
		{errors.New("connection refused"), ""},
		{replication.ErrServerEnded, ""},
		{&replication.SlotBusyError{Slot: "s", PID: 7}, ""},
		{&replication.SlotLostError{}, halt.SlotLost},
		{&replication.SlotMismatchError{Slot: "s", Why: "it is physical"}, halt.SlotMismatch},
		{&replication.PublicationMissingError{}, halt.Publication},
		{&replication.NoDecodingError{}, halt.Setup},
		{column, halt.Column},
		{halt.WrongServer("1", "2"), halt.OtherServer},
	} {
		got := halt.Of(row.err)
		if row.code == "" {
			if got != nil {
				t.Errorf("%v: got halt %s, want none", row.err, got.Code)
			}
			continue
		}
		wrapped := halt.Of(fmt.Errorf("start: %w", row.err))
		if got == nil || wrapped == nil || got.Code != row.code || wrapped.Code != row.code {
			t.Errorf("%T: got %+v, wrapped %+v, want code %s", row.err, got, wrapped, row.code)
			continue
		}
		if !errors.Is(got, row.err) {
			t.Errorf("%T: its halt hides it", row.err)
		}
		if !slices.Contains(halt.Codes(), got.Code) || got.Reason == "" || got.Risk == "" || got.Remedy == "" {
			t.Errorf("%T: got %+v, want a known code, a reason, a risk and a remedy", row.err, got)
		}
		if text := got.Error(); !strings.Contains(text, got.Page()) || !strings.Contains(text, got.Remedy) {
			t.Errorf("%T: got %q, want the remedy and the page %s in it", row.err, text, got.Page())
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
		{&pgconn.PgError{Code: "57P01"}, "somebody, or the server, has ended the connection"},
		{&pgconn.PgError{Code: "42501"}, "Postgres refused a statement; trying again. If it stays so, cdc-relay check"},
		{errors.New("connection reset by peer"), "the connection to Postgres broke off"},
	} {
		if got := halt.Passing(fmt.Errorf("take over: %w", row.err)); !strings.Contains(got, row.want) {
			t.Errorf("%T: got %q, want %q in it", row.err, got, row.want)
		}
	}
}
