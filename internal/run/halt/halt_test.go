package halt_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Breaks it catches: an error that loses events when it is tried again, one that a new session cures and that halts
// all the same, a halt that hides its cause, has a code without a series, or leaves out what is at risk or what to do.
// Seen to fail with the case of a missing publication, and of a synchronous standby, left out, and with a cause that is
// dropped.
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
		{&replication.SynchronousStandbyError{ApplicationName: "a", Names: "*"}, halt.Setup},
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
