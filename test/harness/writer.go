package harness

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// row is one outbox row to be.
type row struct {
	id            pgtype.UUID
	aggregateType string
	aggregateID   *string
	seq           int64
	eventType     string
	payload       *string
	trace         string
	created       time.Time
}

// lane is an aggregate that a transaction holds locked.
type lane struct {
	aggregateType, aggregateID string
	seq                        int64
}

// writer is one session of a workload.
type writer struct {
	load   *Load
	number int
	random *rand.Rand
	conn   *pgx.Conn // nil = to be opened
	count  int       // transactions begun, for names of prepared ones

	lanes []lane // of the present transaction
	rows  []row  // written by the present transaction and not rolled back
}

func newWriter(l *Load, number int) *writer {
	return &writer{load: l, number: number, random: rand.New(rand.NewPCG(l.workload.Seed, uint64(number)))}
}

// run writes until enough is committed or ctx ends. Only an error that no crash explains ends it early.
func (w *writer) run(ctx context.Context) error {
	defer w.disconnect()
	for ctx.Err() == nil && !w.load.enough() {
		w.load.pace(ctx)
		if err := w.turn(ctx); err != nil {
			return err
		}
	}
	if w.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return w.reconnect(ctx) // the last transaction may have been cut off after its first phase
}

// turn does one transaction, after a crash another one: what was prepared before it holds locks, and so the next pause
// finds nothing prepared.
func (w *writer) turn(ctx context.Context) error {
	w.load.turns.RLock()
	defer w.load.turns.RUnlock()
	for {
		err := w.once(ctx)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && !strings.HasPrefix(refused.Code, "57P") && !strings.HasPrefix(refused.Code, "08") {
			return err
		}
		w.disconnect()
	}
}

// reconnect opens a session and ends what a crash left prepared: its rows are as good as any.
func (w *writer) reconnect(ctx context.Context) error {
	conn, err := w.load.connect(ctx)
	if err != nil {
		return err
	}
	w.conn = conn
	return w.commitPrepared(ctx)
}

func (w *writer) disconnect() {
	if w.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = w.conn.Close(ctx)
		w.conn = nil
	}
}

// once does one transaction.
func (w *writer) once(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // a transaction that has begun is finished, so that Stop leaves no doubt
	if w.conn == nil {
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := w.reconnect(limited); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // a server may be frozen or cut off
	defer cancel()
	return w.transaction(ctx)
}

func (w *writer) gid(n int) string { return fmt.Sprintf("%s/%d/%d", w.load.name, w.number, n) }

func (w *writer) commitPrepared(ctx context.Context) error {
	rows, err := w.conn.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND gid LIKE $1`,
		fmt.Sprintf("%s/%d/%%", w.load.name, w.number))
	if err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list prepared transactions: %w", err)
	}
	for _, gid := range gids {
		if _, err := w.conn.Exec(ctx, "COMMIT PREPARED "+quote(gid)); err != nil {
			return fmt.Errorf("commit prepared transaction: %w", err)
		}
	}
	return nil
}

// shapes are the kinds of transactions, each with its share in percent; they add up to 100.
var shapes = []struct {
	share  int
	lanes  int // at most so many aggregates
	events int // at most so many events
	write  func(*writer, context.Context, int) error

	deletes bool
}{
	{30, 1, 1, (*writer).insertEach, false},
	{18, 3, 10, (*writer).insertEach, false},
	{15, 4, 20, (*writer).insertTogether, false},
	{8, 10, 50, (*writer).copyIn, false},
	{9, 3, 9, (*writer).insertWithSavepoints, false},
	{6, 2, 4, (*writer).insertAndAbort, false},
	{6, 2, 4, (*writer).insertTwoPhase, false},
	{5, 2, 4, (*writer).insertAndDelete, true},
	{3, 1, 3, (*writer).insertSlowly, false},
}

// errAbort makes transaction roll back what was written.
var errAbort = errors.New("roll back")

// errPrepared reports that the transaction was prepared.
var errPrepared = errors.New("prepared")

func (w *writer) transaction(ctx context.Context) error {
	w.count++
	dice, n := w.random.IntN(100), 0
	for dice >= shapes[n].share {
		dice -= shapes[n].share
		n++
	}
	if shapes[n].deletes && w.load.workload.OnlyKept {
		n = 0
	}
	shape := shapes[n]
	w.rows = w.rows[:0]
	if _, err := w.conn.Exec(ctx, "BEGIN"); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	err := w.lock(ctx, 1+w.random.IntN(shape.lanes))
	if err == nil {
		err = shape.write(w, ctx, 1+w.random.IntN(shape.events))
	}
	if err == nil {
		err = w.writeTruth(ctx)
	}
	end := "COMMIT"
	switch {
	case errors.Is(err, errAbort):
		end = "ROLLBACK"
		w.rows = w.rows[:0]
	case errors.Is(err, errPrepared):
		end = "COMMIT PREPARED " + quote(w.gid(w.count))
	case err != nil:
		return err
	}
	if _, err := w.conn.Exec(ctx, end); err != nil {
		return fmt.Errorf("%s: %w", strings.ToLower(end), err)
	}
	w.load.committed.Add(int64(len(w.rows)))
	return nil
}

// lock takes some aggregates, in one order for all writers so that they never deadlock.
func (w *writer) lock(ctx context.Context, count int) error {
	wanted := make(map[lane]bool)
	for range count {
		types := w.load.workload.Types
		wanted[lane{types[w.random.IntN(len(types))], aggregate(1 + w.random.IntN(w.load.workload.Aggregates)), 0}] = true
	}
	w.lanes = w.lanes[:0]
	for l := range wanted {
		w.lanes = append(w.lanes, l)
	}
	slices.SortFunc(w.lanes, func(a, b lane) int {
		return cmp.Or(cmp.Compare(a.aggregateType, b.aggregateType), cmp.Compare(a.aggregateID, b.aggregateID))
	})
	for n := range w.lanes {
		l := &w.lanes[n]
		err := w.conn.QueryRow(ctx, `SELECT seq FROM truth_lane WHERE aggregate_type = $1 AND aggregate_id = $2 FOR UPDATE`,
			l.aggregateType, l.aggregateID).Scan(&l.seq)
		if err != nil {
			return fmt.Errorf("lock an aggregate: %w", err)
		}
	}
	return nil
}

// aggregate is the id of an aggregate: every other one is not plain ASCII, in characters of two to four bytes, or has
// what SQL, JSON and COPY write otherwise.
func aggregate(n int) string {
	switch n % 4 {
	case 2:
		return fmt.Sprintf("Zoë %d 東京 𝄞", n)
	case 0:
		return fmt.Sprintf("ключ\t%d\n'\"\\N,;\u200b\u00a0", n)
	}
	return fmt.Sprintf("a%d", n)
}

// sayings stand in payloads, as JSON writes them.
var sayings = []string{
	"", "plain", "Grüße aus Zürich", "東京 𝄞 🙂", `tab \t, line \n, quote \", slash \\, \u0001`, "Привет\u200b",
}

// newRow makes the next event of one of the locked aggregates.
func (w *writer) newRow() row {
	l := &w.lanes[w.random.IntN(len(w.lanes))]
	l.seq++
	r := row{
		aggregateType: l.aggregateType,
		seq:           l.seq,
		eventType:     "changed",
		trace:         fmt.Sprintf("00-%016x%016x-%016x-01", w.random.Uint64(), w.random.Uint64(), w.random.Uint64()),
		created:       time.Now().UTC().Truncate(time.Microsecond),
	}
	r.id.Valid = true // and random for each run, so that workloads with one seed do not meet
	binary.BigEndian.PutUint64(r.id.Bytes[:8], rand.Uint64())
	binary.BigEndian.PutUint64(r.id.Bytes[8:], rand.Uint64())
	if every := w.load.workload.Keyless; every == 0 || w.random.IntN(every) != 0 {
		id := l.aggregateID
		r.aggregateID = &id
	}
	if every := w.load.workload.Tombstones; every == 0 || w.random.IntN(every) != 0 {
		key, _ := json.Marshal(l.aggregateID)
		payload := fmt.Sprintf(`{"key": %s, "seq": %d, "said": "%s", "pad": "%s"}`, key, l.seq,
			sayings[w.random.IntN(len(sayings))], strings.Repeat("x", w.load.workload.PayloadBytes))
		r.payload = &payload
	}
	w.rows = append(w.rows, r)
	return r
}

// writeTruth records what the transaction is about to commit.
func (w *writer) writeTruth(ctx context.Context) error {
	for _, l := range w.lanes {
		_, err := w.conn.Exec(ctx, `UPDATE truth_lane SET seq = $3 WHERE aggregate_type = $1 AND aggregate_id = $2`,
			l.aggregateType, l.aggregateID, l.seq)
		if err != nil {
			return fmt.Errorf("advance an aggregate: %w", err)
		}
	}
	columns := []string{"id", "aggregate_type", "aggregate_id", "seq", "event_type", "payload", "trace", "created_at"}
	_, err := w.conn.CopyFrom(ctx, pgx.Identifier{"truth"}, columns,
		pgx.CopyFromSlice(len(w.rows), func(n int) ([]any, error) {
			r := w.rows[n]
			return []any{r.id, r.aggregateType, r.aggregateID, r.seq, r.eventType, r.payload, r.trace, r.created}, nil
		}))
	if err != nil {
		return fmt.Errorf("write the truth: %w", err)
	}
	return nil
}
