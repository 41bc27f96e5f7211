// Package ledger is the inbox's side of Postgres: which events were decided and how, what waits, and how far each
// partition is. It runs no handler and knows nothing of Kafka.
//
// Tested on a real Postgres in the module test/inbox.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// State is how an event was decided.
type State int16

// How an event was decided, as inbox_word calls it.
const (
	Done State = iota
	Parked
	Dead
	Discarded
)

// ID identifies an event, whatever message it comes in.
type ID struct {
	Source int16 // of ids that are unique in one outbox only; 0 for uuids
	Event  string
}

// Place is a partition of a topic.
type Place struct {
	Topic     string
	Partition int32
}

// ErrSetBack reports that the database is not the one that the offsets were read from, or lacks what this process
// committed: its server was started again, or it was restored. The caller forgets what it has in memory and reads
// again.
var ErrSetBack = errors.New("the database was set back, or is another one")

// ErrUnfinished reports that the inbox's tables are incomplete, as while a restore runs. The caller waits.
var ErrUnfinished = errors.New("the inbox's tables are incomplete")

const (
	codeSetBack = "IB001"
	// LockWait is how long a transaction waits for another one's row; inbox_claim_events has the same.
	LockWait = 200 * time.Millisecond
)

// Ledger is one consumer's view of the tables. It keeps:
//
//  1. Whatever it writes is written by a transaction that has seen the server and the tables of Open, and what was
//     committed or read last.
//  2. A row of inbox_parked exists exactly while its event's state is parked.
//  3. A partition's next offset only grows.
type Ledger struct {
	pool     *pgxpool.Pool
	schema   string // quoted, with the dot
	consumer int16
	name     string // the consumer's
	server   time.Time
	file     string        // of inbox_offset: see inbox_file
	keep     time.Duration // of ids
	unicode  bool          // the database and its connections have every character
	begin    string        // a handler's transaction
	beginOwn string        // one without handlers

	parked atomic.Int64 // of all processes, at the last count, and by this one since

	mu     sync.Mutex
	number int64     // of the last fact
	metAt  time.Time // of the fact that was met
	facts  []fact    // what was committed or read, and no transaction that was committed later has looked for
}

// fact is a row that a database has unless it was set back: an event's row, which a transaction of this process has
// committed, or an offset, which it has read.
type fact struct {
	number int64
	id     ID   // of the event; without one the fact is an offset
	parked bool // else the event's state is another one
	met    bool // another process has decided the event
	at     time.Time
	offset Partition
}

// Tx is a transaction for handlers. Claim or Lowest is the first statement in it.
type Tx struct {
	pgx.Tx
	l       *Ledger
	seen    int64 // the number up to which facts were looked for
	entered ID    // one of those that Claim entered; without an event if there is none

	mu   sync.Mutex
	conn *pgxpool.Conn // nil: given back, or abandoned
}

// CommitEvent commits. The transaction has given the event that state.
func (tx *Tx) CommitEvent(ctx context.Context, id ID, state State) error {
	if err := tx.Tx.Commit(ctx); err != nil {
		return err
	}
	tx.l.committed(tx.seen, id, state)
	return nil
}

// End rolls back what was not committed, and gives the connection back: to be used again, or unclean, to be closed.
func (tx *Tx) End(ctx context.Context, unclean bool) {
	ctx = context.WithoutCancel(ctx)
	_ = tx.Rollback(ctx)
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.conn == nil {
		return
	}
	if unclean {
		_ = tx.conn.Conn().Close(ctx)
	}
	tx.conn.Release()
	tx.conn = nil
}

// Abandon ends the transaction beneath a handler that does not return: the server rolls back, and the pool has the
// connection no more. Any goroutine may call it.
func (tx *Tx) Abandon() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.conn == nil {
		return
	}
	_ = tx.conn.Hijack().PgConn().Conn().Close()
	tx.conn = nil
}

// committed notes the state that a transaction has given an event. It looked for the facts up to the number.
func (l *Ledger) committed(seen int64, id ID, state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = slices.DeleteFunc(l.facts, func(f fact) bool { return f.number <= seen })
	l.number++
	l.facts = append(l.facts, fact{number: l.number, id: id, parked: state == Parked, at: time.Now()})
}

// met notes the last event that others have decided: this process counts on its row, too.
func (l *Ledger) met(ids []ID, conflicts []Conflict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conflicts {
		if c.at.Before(l.metAt) {
			continue
		}
		l.metAt = c.at
		l.facts = slices.DeleteFunc(l.facts, func(f fact) bool { return f.met })
		l.number++
		l.facts = append(l.facts, fact{
			number: l.number, id: ids[c.Place], parked: c.State == Parked, met: true, at: time.Now(),
		})
	}
}

// read notes offsets, in the place of what was known of their partitions.
func (l *Ledger) read(offsets []Partition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range offsets {
		l.facts = slices.DeleteFunc(l.facts, func(f fact) bool { return f.id.Event == "" && f.offset.Place == p.Place })
		l.number++
		l.facts = append(l.facts, fact{number: l.number, offset: p})
	}
}

// known are the arguments of inbox_same, and the number of the last fact among them. An event whose id may soon be
// forgotten proves nothing.
func (l *Ledger) known() (args []any, seen int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sources, ids, parked := []int16{}, []string{}, []bool{}
	topics, partitions, offsets := []string{}, []int32{}, []int64{}
	for _, f := range l.facts {
		switch {
		case f.id.Event == "":
			topics, partitions = append(topics, f.offset.Topic), append(partitions, f.offset.Partition)
			offsets = append(offsets, f.offset.Next)
		case time.Since(f.at) < l.keep/2:
			sources, ids, parked = append(sources, f.id.Source), append(ids, f.id.Event), append(parked, f.parked)
		}
	}
	return []any{l.consumer, l.name, l.server, l.file, sources, ids, parked, topics, partitions, offsets}, l.number
}

// Open finds the consumer, or enters it. Sessions that stand still in a transaction are ended by the server after idle:
// no one else could go on with their keys.
func Open(
	ctx context.Context, pool *pgxpool.Pool, schema, consumer string, idle, keep time.Duration,
) (*Ledger, error) {
	if err := complete(ctx, pool, schema); err != nil {
		return nil, err
	}
	l := &Ledger{pool: pool, schema: prefix(schema), name: consumer, keep: keep}
	l.begin = fmt.Sprintf("begin isolation level read committed read write; "+
		"set local idle_in_transaction_session_timeout = %d",
		idle.Milliseconds())
	l.beginOwn = l.begin + fmt.Sprintf("; set local lock_timeout = %d", LockWait.Milliseconds())
	err := pool.QueryRow(ctx, "SELECT "+l.schema+"inbox_register($1), pg_postmaster_start_time(), "+
		l.schema+"inbox_file(), getdatabaseencoding() = 'UTF8' AND current_setting('client_encoding') = 'UTF8'", consumer).
		Scan(&l.consumer, &l.server, &l.file, &l.unicode)
	if err != nil {
		return nil, fmt.Errorf("register consumer %s: %w", consumer, err)
	}
	return l, nil
}

func prefix(schema string) string { return pgx.Identifier{schema}.Sanitize() + "." }

// Begin opens a transaction for handlers, which End ends.
func (l *Ledger) Begin(ctx context.Context) (*Tx, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: l.begin})
	if err != nil {
		conn.Release()
		return nil, fmt.Errorf("begin: %w", err)
	}
	return &Tx{Tx: tx, l: l, conn: conn}, nil
}

func (l *Ledger) same() string {
	return "SELECT " + l.schema + "inbox_same($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
}

// within runs a transaction of the ledger's own.
func (l *Ledger) within(ctx context.Context, what string, body func(pgx.Tx) error) error {
	_, err := l.inside(ctx, what, body)
	return err
}

// Check returns nil if the database answers and is the one of Open.
func (l *Ledger) Check(ctx context.Context) error {
	return l.within(ctx, "look at the database", func(pgx.Tx) error { return nil })
}

// plannedNow has a statement planned each time. A plan that was kept from the time when inbox_event was small would
// read all of it.
const plannedNow = pgx.QueryExecModeCacheDescribe

// entering is within for what changes an event's state: body returns which, or none.
func (l *Ledger) entering(
	ctx context.Context, what string, state State, body func(pgx.Tx) (changed *ID, err error),
) error {
	var changed *ID
	seen, err := l.inside(ctx, what, func(tx pgx.Tx) (err error) {
		changed, err = body(tx)
		return err
	})
	if err == nil && changed != nil { // an older row would prove less than what was seen
		l.committed(seen, *changed, state)
	}
	return err
}

func (l *Ledger) inside(ctx context.Context, what string, body func(pgx.Tx) error) (seen int64, err error) {
	tx, err := l.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: l.beginOwn})
	if err != nil {
		return 0, fmt.Errorf("%s: begin: %w", what, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	known, seen := l.known()
	if _, err := tx.Exec(ctx, l.same(), known...); err != nil {
		return 0, fmt.Errorf("%s: %w", what, setBack(err))
	}
	if err := body(tx); err != nil {
		return 0, fmt.Errorf("%s: %w", what, setBack(err))
	}
	if err := tx.Commit(ctx); err != nil {
		return 0, fmt.Errorf("%s: commit: %w", what, err)
	}
	return seen, nil
}

// setBack turns the functions' error into ErrSetBack.
func setBack(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == codeSetBack {
		return errors.Join(ErrSetBack, err)
	}
	return err
}

// Identify is the stored form of an id: uuids in small letters with source 0, others with the source's number.
func (l *Ledger) Identify(ctx context.Context, id, source string) (found ID, err error) {
	if IsUUID(id) {
		return ID{Event: strings.ToLower(id)}, nil
	}
	if source, err = l.Fit(ctx, source); err != nil {
		return ID{}, err
	}
	err = l.pool.QueryRow(ctx, "SELECT source, event_id FROM "+l.schema+"inbox_identity($1, $2)", id, source).
		Scan(&found.Source, &found.Event)
	if err != nil {
		return ID{}, fmt.Errorf("look up source %q: %w", source, err)
	}
	return found, nil
}

// IsUUID reports whether an id is a uuid with hyphens.
func IsUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		switch c := id[i] | 0x20; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if id[i] != '-' {
				return false
			}
		case id[i] >= '0' && id[i] <= '9', c >= 'a' && c <= 'f':
		default:
			return false
		}
	}
	return true
}
