package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

var (
	errEndsTransaction = errors.New("inbox: a handler must not end its transaction: the event's id is in it, too")
	errEnded           = errors.New("inbox: the handler ended its transaction in SQL: the event's id is in it, too")
	errSwallowed       = errors.New("inbox: the handler returned nil after an error of the database, " +
		"which has already undone the transaction: return the error, or run the statement in a savepoint (tx.Begin)")
	errConnection = errors.New("inbox: the connection was lost while the handler ran")
	errSettings   = errors.New("inbox: the handler changes settings, and other events are in its transaction")
)

// watch records what handlers did to a run's transaction. A run's worker and its handlers use it.
type watch struct {
	tx      *ledger.Tx
	worst   sideEffect // of the present handler's statements
	unclean bool       // settings of the session have changed: the connection is not used again
	raw     bool       // the present handler has had the connection itself
	before  footing    // when it got it
	claimer string     // under which the events were claimed, known then
}

// footing holds the session's state that a handler with the connection could change.
type footing struct {
	xid      int64
	settings string
}

func (w *watch) footing(ctx context.Context) (f footing, err error) {
	err = w.tx.QueryRow(ctx, `SELECT txid_current(), concat_ws(' ', current_user, session_user,
		(SELECT md5(string_agg(name || '=' || setting, ',' ORDER BY name)) FROM pg_catalog.pg_settings
		WHERE source = 'session' AND name <> 'outbox.traceparent'))`).Scan(&f.xid, &f.settings)
	return f, err
}

// look decides what a handler's end means, by the transaction's status and the connection: an error that looks like a
// lost connection may be of anything that the handler called, and nil may hide an error.
func (r *run) look(err error) error {
	conn := r.watch.tx.Conn().PgConn()
	switch {
	case r.ctx.Err() != nil:
		return r.explain(errors.Join(err, r.ctx.Err()))
	case r.handling.Err() != nil:
		return judged{errors.Join(errHandlerTimeout, err), causeTransient}
	case conn.IsClosed():
		return judged{errors.Join(errConnection, err), lostBy(err)}
	case r.watch.worst == ends || conn.TxStatus() == 'I':
		return judged{errors.Join(errEnded, err), causeTransient}
	case err != nil:
		return judged{err, returned(err, conn.TxStatus())}
	case conn.TxStatus() == 'E':
		return judged{errSwallowed, causeTransient}
	case r.watch.raw:
		return r.lookAgain()
	}
	return nil
}

// lookAgain asks the server whether a handler that had the connection itself has left the transaction as it was.
func (r *run) lookAgain() error {
	after, err := r.watch.footing(r.ctx)
	switch {
	case err != nil:
		return own(r.explain(err))
	case after.xid != r.watch.before.xid:
		return judged{errEnded, causeTransient}
	case after.settings != r.watch.before.settings:
		r.watch.worst, r.watch.unclean = setsSession, true
	}
	return nil
}

// lostBy is whose fault it is that the connection is closed. pgx closes one whose query's context has ended, and the
// server one that stands still: both are the handler's.
func lostBy(err error) cause {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && classifyCode(pg.Code) == causeTransient ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return causeTransient
	}
	return causeLost
}

// returned classifies an error that a handler returned on a healthy connection. Codes of the database count
// only if it was this transaction that failed.
func returned(err error, status byte) cause {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, new(permanentError)):
		return causePermanent
	case errors.As(err, new(outageError)):
		return causeOutage
	case status == 'E' && errors.As(err, &pg) && pg.Code != "25006": // the handler has made it read-only
		return classifyCode(pg.Code)
	}
	return causeTransient
}

// handlerTx is the transaction as a handler has it, or a savepoint in it.
type handlerTx struct {
	pgx.Tx
	r         *run
	savepoint bool
}

// Commit releases a savepoint.
func (t handlerTx) Commit(ctx context.Context) error {
	if t.savepoint {
		return t.Tx.Commit(ctx)
	}
	return errEndsTransaction
}

// Rollback goes back to a savepoint.
func (t handlerTx) Rollback(ctx context.Context) error {
	if t.savepoint {
		return t.Tx.Rollback(ctx)
	}
	return errEndsTransaction
}

// Begin makes a savepoint.
func (t handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return handlerTx{tx, t.r, true}, nil
}

func (t handlerTx) allow(sql string) error {
	w := &t.r.watch
	worst := inspect(sql)
	w.worst = max(w.worst, worst)
	w.unclean = w.unclean || worst == setsSession
	if worst == ends {
		return errEndsTransaction
	}
	return nil
}

// Exec refuses what would end the transaction, as do the methods below.
func (t handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.allow(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.allow(sql); err != nil {
		return nil, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.allow(sql); err != nil {
		return refused{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

type refused struct{ err error }

func (r refused) Scan(...any) error { return r.err }

func (t handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.allow(sql); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.allow(q.SQL); err != nil {
			return refusedBatch{err: err}
		}
	}
	return t.Tx.SendBatch(ctx, b)
}

type refusedBatch struct {
	pgx.BatchResults
	err error
}

func (r refusedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r refusedBatch) Query() (pgx.Rows, error)         { return nil, r.err }
func (r refusedBatch) QueryRow() pgx.Row                { return refused{r.err} }
func (r refusedBatch) Close() error                     { return r.err }

// Conn hands over the connection itself. What the handler does with it is looked at when it has ended, which costs
// three statements.
func (t handlerTx) Conn() *pgx.Conn {
	w := &t.r.watch
	if !w.raw {
		before, err := w.footing(t.r.ctx)
		if err == nil {
			w.claimer, err = w.tx.Claimer(t.r.ctx)
		}
		if err != nil {
			t.r.s.c.config.Log.Warn("inbox: looking at a transaction", "consumer", t.r.s.c.config.Name, "error", err)
		}
		w.raw, w.before = true, before
	}
	return t.Tx.Conn()
}

// unclaim takes back the rows of events whose handler was not called, after a handler has committed the transaction.
func (s *session) unclaim(r *run, tasks []*task, err error) {
	if !errors.Is(err, errEnded) || r.watch.claimer == "" {
		return
	}
	var ids []ledger.ID
	for _, t := range tasks {
		if !t.called {
			ids = append(ids, t.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	if err := s.ledger.Unclaim(r.ctx, ids, r.watch.claimer); err != nil {
		s.c.config.Log.Error("inbox: a handler has committed its transaction, and with it the ids of events that were not "+
			"handled: get them handled with inbox_rewind", "consumer", s.c.config.Name, "ids", fmt.Sprint(ids), "error", err)
	}
}

// apart lets the lanes go alone that have events which must be alone in their transactions, where there are others.
func (s *session) apart(job lanes.Job, tasks []*task) []lanes.Verdict {
	var verdicts []lanes.Verdict
	for _, t := range tasks {
		if len(tasks) == 1 || t.handler == nil || !t.handler.solitary.Load() {
			continue
		}
		if verdicts == nil {
			verdicts = make([]lanes.Verdict, len(job.Pieces))
		}
		verdicts[t.piece].Alone = len(job.Pieces[t.piece].Items)
	}
	return verdicts
}
