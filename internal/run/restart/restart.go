// Package restart says when, under which name and in which words a session follows another: pure functions of how the
// last one ended. Which ends are halts is package halt's concern, and who begins the next session the relay's.
package restart

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/retry"
)

// What a session ends with, beside what its servers say.
var (
	ErrTakenOver = errors.New("another relay took the slot over")
	// ErrNotStreaming reports that the reason, behind what no one has read, has not arrived.
	ErrNotStreaming = errors.New("the server stopped streaming to this relay; the reason is not known yet")
	// ErrSpools ends a session whose events cannot be sent; the next one stores them.
	ErrSpools = errors.New("events cannot be sent, and Postgres keeps WAL for them up to wal.budget")
	// ErrRight ends a session that has left an outbox out; the next one publishes its rows from the table.
	ErrRight = errors.New("an outbox that was left out is right again")
	// ErrArrived ends a term whose topics have what it cannot know of; the next one reads them back.
	ErrArrived = errors.New("a record that this relay, or one that it replaced, had sent arrived after the topics were " +
		"read back, and is none of those in flight")
	// ErrSounded ends a session that has thrown away what it read.
	ErrSounded = errors.New("read ahead after sessions that ended before their stream was read, " +
		"and found nothing wrong; starting a new session")
)

const (
	steadySession = 10 * time.Second // a session that lasted this long resets the backoff
	briefAttempts = 3                // the backoff of one that streamed for a shorter time grows no further than this
)

var (
	reconnectBackoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 15 * time.Second, Jitter: 0.2}
	haltProbe        = retry.Backoff{Initial: 2 * time.Second, Max: 30 * time.Second, Jitter: 0.2}
)

// Failures counts, in a row, the sessions that failed, and those that ended in a halt.
type Failures struct{ Sessions, Halts int }

// Next counts one more session, which lasted so long, did or did not come to stream, and ended by err, a halt or not.
// It says how long to wait before the next one.
func (f *Failures) Next(lasted time.Duration, streamed bool, err error, halt bool) time.Duration {
	most := math.MaxInt
	switch {
	case lasted > steadySession:
		most = 1
	case streamed, errors.Is(err, ErrSounded):
		// It read its stream: what ended it, or those before it, is new or over.
		most = briefAttempts
	}
	f.Sessions, f.Halts = min(f.Sessions+1, most), min(f.Halts+1, most)
	if !halt {
		f.Halts = 0
		return reconnectBackoff.Delay(f.Sessions, rand.Float64())
	}
	return haltProbe.Delay(f.Halts, rand.Float64())
}

// Reason is the label of a session's end; few values, none from data.
func Reason(err error) string {
	if _, ok := errors.AsType[*replication.SilentError](err); ok {
		return meter.RestartSilent
	}
	if errors.Is(err, replication.ErrServerEnded) {
		return meter.RestartServerShutdown
	}
	if errors.Is(err, ErrSpools) {
		return meter.RestartSpool
	}
	if errors.Is(err, ErrRight) {
		return meter.RestartOutbox
	}
	if replaced(err) || errors.Is(err, ErrNotStreaming) {
		return meter.RestartLeaseLost
	}
	return meter.RestartConnection
}

// replaced reports that another relay has the slot, or may have it.
func replaced(err error) bool {
	for _, lost := range []error{ErrTakenOver, store.ErrFenced, store.ErrLeaseLost} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// interventions is the class of SQLSTATE for what an operator does to a connection, pg_terminate_backend for one.
const interventions = "57"

// Said says why a session ended whose next attempt may do better, and what to do if none does. The error itself stands
// beside it.
func Said(err error) string {
	if r := login.Of(err); r != nil {
		return "no connection to Postgres; trying again. If it stays so: " + r.Remedy
	}
	if _, silent := errors.AsType[*replication.SilentError](err); silent {
		return "the server has not answered for wal_sender_timeout; reconnecting"
	}
	switch {
	case errors.Is(err, replication.ErrServerEnded):
		return "the server has ended the stream, as at a shutdown; reconnecting"
	case errors.Is(err, bootstrap.ErrSlotWaits):
		return "the slot cannot be created yet; trying again"
	case errors.Is(err, ErrSpools):
		return "events cannot be sent; a new session stores them in cdc_relay_spool, so that Postgres can remove WAL"
	case errors.Is(err, ErrRight):
		return "starting again, with its rows from the table"
	case replaced(err):
		return "another relay has the slot, or may have it; checking again"
	}
	if pg, is := errors.AsType[*pgconn.PgError](err); is {
		if strings.HasPrefix(pg.Code, interventions) {
			return "the server or an administrator ended the connection; reconnecting"
		}
		return "Postgres refused a statement; trying again. If it persists, cdc-relay check shows what is missing"
	}
	if store.Classify(err) == store.Reconnect {
		return "the connection to Postgres broke off; reconnecting"
	}
	return "the session ended; starting another"
}
