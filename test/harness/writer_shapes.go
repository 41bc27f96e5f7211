package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// outboxColumns are the columns that a workload writes; those of row.values, in that order.
var outboxColumns = []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "created_at"}

func (r row) values() []any {
	return []any{r.id, r.aggregateType, r.aggregateID, r.eventType, r.payload, `{"traceparent": "` + r.trace + `"}`,
		r.created}
}

func (w *writer) insert(ctx context.Context, rows ...row) error {
	var sql strings.Builder
	fmt.Fprintf(&sql, "INSERT INTO %s (%s) VALUES ", w.load.workload.Table, strings.Join(outboxColumns, ", "))
	values := make([]any, 0, len(rows)*len(outboxColumns))
	for n, r := range rows {
		if n > 0 {
			sql.WriteString(", ")
		}
		first := n * len(outboxColumns)
		fmt.Fprintf(&sql, "($%d, $%d, $%d, $%d, $%d, $%d, $%d)", first+1, first+2, first+3, first+4, first+5, first+6,
			first+7)
		values = append(values, r.values()...)
	}
	if _, err := w.conn.Exec(ctx, sql.String(), values...); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	return nil
}

func (w *writer) insertEach(ctx context.Context, events int) error {
	for range events {
		if err := w.insert(ctx, w.newRow()); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) newRows(events int) []row {
	for range events {
		w.newRow()
	}
	return slices.Clone(w.rows[len(w.rows)-events:])
}

func (w *writer) insertTogether(ctx context.Context, events int) error {
	return w.insert(ctx, w.newRows(events)...)
}

func (w *writer) copyIn(ctx context.Context, events int) error {
	rows := w.newRows(events)
	table := pgx.Identifier(strings.Split(w.load.workload.Table, "."))
	_, err := w.conn.CopyFrom(ctx, table, outboxColumns, pgx.CopyFromSlice(len(rows), func(n int) ([]any, error) {
		return rows[n].values(), nil
	}))
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// insertWithSavepoints writes in three parts; the middle one is rolled back, and its numbers are drawn again.
func (w *writer) insertWithSavepoints(ctx context.Context, events int) error {
	part := max(events/3, 1)
	if err := w.insertEach(ctx, part); err != nil {
		return err
	}
	lanes, kept := slices.Clone(w.lanes), len(w.rows)
	if _, err := w.conn.Exec(ctx, "SAVEPOINT s"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	if err := w.insertTogether(ctx, part); err != nil {
		return err
	}
	if _, err := w.conn.Exec(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
		return fmt.Errorf("roll back to savepoint: %w", err)
	}
	w.lanes, w.rows = lanes, w.rows[:kept]
	if _, err := w.conn.Exec(ctx, "SAVEPOINT kept"); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	return w.insertEach(ctx, part)
}

func (w *writer) insertAndAbort(ctx context.Context, events int) error {
	if err := w.insertEach(ctx, events); err != nil {
		return err
	}
	return errAbort
}

// insertTwoPhase leaves the transaction prepared. Its truth has to be written before that.
func (w *writer) insertTwoPhase(ctx context.Context, events int) error {
	if err := w.insertTogether(ctx, events); err != nil {
		return err
	}
	if err := w.writeTruth(ctx); err != nil {
		return err
	}
	if _, err := w.conn.Exec(ctx, "PREPARE TRANSACTION "+quote(w.gid(w.count))); err != nil {
		return fmt.Errorf("prepare transaction: %w", err)
	}
	return errPrepared
}

// insertAndDelete removes its rows before it commits. They are events all the same: the outbox is a log of inserts.
func (w *writer) insertAndDelete(ctx context.Context, events int) error {
	for _, r := range w.newRows(events) {
		if err := w.insert(ctx, r); err != nil {
			return err
		}
		if _, err := w.conn.Exec(ctx, "DELETE FROM "+w.load.workload.Table+" WHERE id = $1", r.id); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	return nil
}

// insertSlowly stays open while others commit, so that transactions begin and commit in different orders.
func (w *writer) insertSlowly(ctx context.Context, events int) error {
	for range events {
		if err := w.insert(ctx, w.newRow()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(w.random.IntN(20)) * time.Millisecond):
		}
	}
	return nil
}
