package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks err as one that a retry cannot cure: the event becomes a dead letter at once. Permanent(nil),
// Outage(nil) and RetryAfter(d, nil) are nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type outageError struct{ error }

func (e outageError) Unwrap() error { return e.error }

// Outage marks err as the outage of something that the handler needs. The event is retried without counting an attempt.
func Outage(err error) error {
	if err == nil {
		return nil
	}
	return outageError{err}
}

type retryAfterError struct {
	error
	wait time.Duration
}

func (e retryAfterError) Unwrap() error { return e.error }

// RetryAfter marks err with the time to wait before the next attempt. It counts as an attempt.
func RetryAfter(wait time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return retryAfterError{err, max(wait, 0)}
}

// own marks an error of the inbox's own statements: whatever it is, it is not the event's fault.
func own(err error) error {
	if err != nil && classify(err) == causeTransient {
		return Outage(err)
	}
	return err
}

// judged is a handler's error whose cause was decided by a look at its transaction.
type judged struct {
	error
	cause cause
}

func (j judged) Unwrap() error { return j.error }

// errInterrupted reports that the work was cut off from outside: the partition was lost, or the consumer stops.
var errInterrupted = errors.New("interrupted")

var errHandlerTimeout = errors.New("the handler took longer than HandlerTimeout")

// cause classifies a failure of an event.
type cause uint8

const (
	causeTransient cause = iota // an attempt
	causePermanent              // dead at once
	causeOutage                 // no attempt; the handler or the ledger says so
	causeLost                   // no attempt, if it is the server; a handler can also be the end of its session
	causeConflict               // no attempt: another transaction was in the way
)

// classify is the one place that says so.
func classify(err error) cause {
	var pg *pgconn.PgError
	var of judged
	switch {
	case errors.Is(err, errInterrupted):
		return causeLost
	case errors.As(err, &of):
		return of.cause
	case errors.As(err, new(permanentError)):
		return causePermanent
	case errors.As(err, new(outageError)):
		return causeOutage
	case errors.Is(err, errHandlerTimeout), errors.Is(err, context.DeadlineExceeded): // of the handler's own calls
		return causeTransient
	case errors.As(err, &pg):
		return classifyCode(pg.Code)
	case errors.Is(err, pgx.ErrTxCommitRollback): // a handler has swallowed an error
		return causeTransient
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) ||
		pgconn.SafeToRetry(err) || err.Error() == "conn closed" || errors.Is(err, pgx.ErrTxClosed) {
		return causeLost
	}
	return causeTransient
}

func classifyCode(code string) cause {
	switch code {
	case "40001", // serialization_failure
		"40P01", // deadlock_detected
		"55P03": // lock_not_available: lock_timeout
		return causeConflict
	case "25P03", // idle_in_transaction_session_timeout: the handler, or this process, stood still
		"25P04": // transaction_timeout
		return causeTransient
	case "57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03", // cannot_connect_now
		"57P05", // idle_session_timeout
		"25006", // read_only_sql_transaction: a standby
		"53300": // too_many_connections
		return causeLost
	}
	switch code[:2] {
	case "08", // connection exception
		"53", // insufficient resources
		"58": // system error
		return causeLost
	}
	return causeTransient
}

// text is an error as it is stored: without what a database's text cannot hold, and not too long.
func text(err error) string {
	const most = 2000
	s := fmt.Sprint(err)
	clean := make([]rune, 0, min(len(s), most))
	for _, r := range s {
		if r == 0 {
			continue
		}
		if clean = append(clean, r); len(clean) == most {
			break
		}
	}
	return string(clean)
}
