package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// One row per line of the table. Break caught: any row that is dropped or changed.
func TestEveryErrorHasItsClass(t *testing.T) {
	pg := func(code string, texts ...string) error {
		e := &pgconn.PgError{Code: code}
		if len(texts) > 0 {
			e.Message = texts[0]
		}
		return fmt.Errorf("settle: %w", e)
	}
	for _, row := range []struct {
		name      string
		err       error
		class     store.Class
		transient bool
	}{
		{"connection_exception", pg("08006"), store.Reconnect, true},
		{"protocol_violation (a pooler's)", pg("08P01"), store.Reconnect, true},
		{"admin_shutdown", pg("57P01"), store.Reconnect, true},
		{"crash_shutdown", pg("57P02"), store.Reconnect, true},
		{"cannot_connect_now", pg("57P03"), store.Reconnect, true},
		{"idle_session_timeout", pg("57P05"), store.Reconnect, true},
		{"too_many_connections", pg("53300"), store.Reconnect, true},
		{"io_error", pg("58030"), store.Reconnect, true},
		{"idle_in_transaction_session_timeout", pg("25P03"), store.Reconnect, true},
		{"end of file", fmt.Errorf("x: %w", io.EOF), store.Reconnect, true},
		{"unexpected end of file", io.ErrUnexpectedEOF, store.Reconnect, true},
		{"connection reset", &net.OpError{Op: "read", Err: syscall.ECONNRESET}, store.Reconnect, true},
		{"closed connection", net.ErrClosed, store.Reconnect, true},
		{"time-out", context.DeadlineExceeded, store.Reconnect, true},
		{"object_in_use", pg("55006"), store.Standby, true},
		{"invalid_password", pg("28P01"), store.Secrets, true},
		{"invalid_authorization", pg("28000"), store.Secrets, true},
		{"read_only_sql_transaction", pg("25006"), store.FindPrimary, true},
		{"decoding on a standby", pg("0A000", "logical decoding cannot be used while in recovery"), store.FindPrimary, true},
		{"WAL control on a standby", pg("55000", "recovery is in progress"), store.FindPrimary, true},
		{"undefined_object", pg("42704"), store.Setup, false},
		{"invalid_catalog_name", pg("3D000"), store.Setup, false},
		{"invalid_schema_name", pg("3F000"), store.Setup, false},
		{"insufficient_privilege", pg("42501"), store.Setup, false},
		{"undefined_table", pg("42P01"), store.Setup, false},
		{"undefined_column", pg("42703"), store.Setup, false},
		{"slot of another database", pg("55000", `replication slot "s" was not created in this database`), store.Setup,
			false},
		{"max_replication_slots", pg("53400"), store.Setup, false},
		{"slot invalidated, 13 to 17", pg("55000", `can no longer get changes from replication slot "s"`), store.SlotGone,
			false},
		{"slot invalidated, 18", pg("55000", `can no longer access replication slot "s": it has been invalidated`),
			store.SlotGone, false},
		{"WAL removed", pg("58P01"), store.SlotGone, false},
		{"serialization_failure", pg("40001"), store.Retry, true},
		{"deadlock_detected", pg("40P01"), store.Retry, true},
		{"lock_not_available", pg("55P03"), store.Retry, true},
		{"query_canceled", pg("57014"), store.Retry, true},
		{"disk_full", pg("53100"), store.Retry, true},
		{"out_of_memory", pg("53200"), store.Retry, true},
		{"transaction_timeout", pg("25P04"), store.Retry, true},
		{"internal_error", pg("XX000"), store.Corrupt, false},
		{"program_limit_exceeded (a row too large to print)", pg("54000"), store.Corrupt, false},
		{"data_corrupted", pg("XX001"), store.Corrupt, false},
		{"index_corrupted", pg("XX002"), store.Corrupt, false},
		{"other feature_not_supported", pg("0A000", "something else"), store.Unclassified, false},
		{"not_null_violation", pg("23502"), store.Unclassified, false},
		{"cancelled by the caller", fmt.Errorf("x: %w", context.Canceled), store.Stopped, false},
		{"fenced", fmt.Errorf("x: %w", store.ErrFenced), store.Unclassified, false},
		{"lease lost", store.ErrLeaseLost, store.Unclassified, false},
		{"anything else", errors.New("x"), store.Unclassified, false},
	} {
		if class, transient := store.Classify(row.err), store.IsTransient(row.err); class != row.class ||
			transient != row.transient {
			t.Errorf("%s: got %s, transient %v, want %s, %v", row.name, class, transient, row.class, row.transient)
		}
	}
}

// Break caught: an error of a real dial that the table does not recognise.
func TestRealConnectionErrorsAreTransient(t *testing.T) {
	s := open(t, store.Config{URL: "postgres://u@127.0.0.1:1/d", Slot: "s", Table: "t", Columns: usualColumns})
	if _, err := s.State(t.Context()); store.Classify(err) != store.Reconnect {
		t.Errorf("refused connection: got %s for %v, want reconnect", store.Classify(err), err)
	}
}
