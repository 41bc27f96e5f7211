package record

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Class says what an error of Postgres asks for.
type Class string

// The classes.
const (
	Unclassified Class = "unclassified" // the same call will most likely fail again
	Reconnect    Class = "reconnect"    // the connection or the server is gone: back off and connect again
	Standby      Class = "standby"      // the slot is held by another: wait
	Secrets      Class = "secrets"      // the secret is refused: read it again, alert, back off
	FindPrimary  Class = "find primary" // this server is a standby
	Setup        Class = "setup"        // something is missing or not granted: halt, a person must act
	SlotGone     Class = "slot gone"    // the slot was invalidated, its WAL is removed: recover from the table
	Retry        Class = "retry"        // a lock, a deadlock, a timeout, a full disk: the same again, later
	Corrupt      Class = "corrupt"      // an internal error or limit of the server, poison when it repeats
	Stopped      Class = "stopped"      // the caller's own context was cancelled
)

// classes by SQLSTATE; a key of two characters is a class of the standard's. The longer key wins.
var classes = map[string]Class{
	"08": Reconnect, "57P01": Reconnect, "57P02": Reconnect, "57P03": Reconnect, "57P05": Reconnect, "53300": Reconnect,
	"58030": Reconnect, "25P03": Reconnect, // idle_in_transaction_session_timeout ends the session
	"55006": Standby,
	"28":    Secrets,
	"25006": FindPrimary,
	"42704": Setup, "3D000": Setup, "42501": Setup, "42P01": Setup, "42703": Setup, "3F000": Setup, "55000": Setup,
	"53400": Setup, // max_replication_slots
	"58P01": SlotGone,
	"40001": Retry, "40P01": Retry, "55P03": Retry, "57014": Retry, "53100": Retry, "53200": Retry, "25P04": Retry,
	"XX000": Corrupt, "XX001": Corrupt, "XX002": Corrupt, "54000": Corrupt, // a row whose text is larger than 1 GB
}

// Classify is the one table that says what to do about an error. The texts that it looks into are Postgres's own, in
// English; a server with other lc_messages falls back to the class of the code alone.
func Classify(err error) Class {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch {
		case pg.Code == "0A000" && strings.Contains(pg.Message, "recovery"):
			return FindPrimary
		case pg.Code == "55000" && strings.Contains(pg.Message, "recovery"):
			return FindPrimary
		case pg.Code == "55000" && (strings.Contains(pg.Message, "can no longer get changes") ||
			strings.Contains(pg.Message, "invalidated") || strings.Contains(pg.Detail, "invalidated")):
			return SlotGone
		}
		if class, found := classes[pg.Code]; found {
			return class
		}
		if len(pg.Code) == 5 {
			if class, found := classes[pg.Code[:2]]; found {
				return class
			}
		}
		return Unclassified
	}
	var dial *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.Is(err, ErrFenced), errors.Is(err, ErrLeaseLost):
		return Unclassified
	case errors.Is(err, context.Canceled):
		return Stopped
	case errors.As(err, &dial), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), pgconn.Timeout(err), pgconn.SafeToRetry(err):
		return Reconnect
	}
	return Unclassified
}

// IsAboutRows reports whether Postgres refuses what is in a row, so that other rows of the same statement may be taken:
// a value or a constraint, a limit, or what a trigger raises. Not a key that is there twice: that has its own answer.
func IsAboutRows(err error) bool {
	if errors.Is(err, ErrIDTaken) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 || pg.Code == "23505" {
		return false
	}
	switch pg.Code[:2] {
	case "22", "23", "44", "54", "P0":
		return true
	}
	return false
}

// IsTransient tells whether the same call may succeed later without anybody changing the relay's set-up. That includes
// a refused secret: it is read again at each connect, and rotation looks like this for a while. What the failed call
// wrote is unknown when the connection broke; every call of this package may be repeated.
func IsTransient(err error) bool {
	switch Classify(err) {
	case Reconnect, Standby, Secrets, FindPrimary, Retry:
		return true
	}
	return false
}

// IsLock reports that another session stood in the way, and will not forever (serialization_failure, deadlock_detected,
// lock_not_available).
func IsLock(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "55P03")
}

// IsOutOfTime reports that the server ended a statement: in most cases one that took longer than it may
// (query_canceled).
func IsOutOfTime(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "57014"
}

// IsShutdown reports that the server ends this session or lets no one in, as it does when it shuts down
// (admin_shutdown, crash_shutdown, cannot_connect_now).
func IsShutdown(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	return pg.Code == "57P01" || pg.Code == "57P02" || pg.Code == "57P03"
}

// IsDenied reports whether Postgres refused something for want of a privilege.
func IsDenied(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// Said is Postgres's own text in an error, or the error's.
func Said(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Message
	}
	return err.Error()
}
