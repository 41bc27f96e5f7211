package inbox

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox/internal/sqltx"
)

// OnSQL is [On] for handlers on database/sql. The *sql.Tx is the event's transaction: Commit and Rollback are refused
// and cost an attempt. Arguments may have any type that pgx accepts.
func OnSQL[T any](c *Consumer, eventType string, handle func(context.Context, *sql.Tx, Event[T]) error) {
	if handle == nil {
		On[T](c, eventType, nil)
		return
	}
	On(c, eventType, func(ctx context.Context, tx pgx.Tx, e Event[T]) error {
		return sqltx.Lend(ctx, tx, func(lent *sql.Tx) error { return handle(ctx, lent, e) })
	})
}

// OnBatchSQL is [OnBatch] for handlers on database/sql; see [OnSQL].
func OnBatchSQL[T any](c *Consumer, eventType string, handle func(context.Context, *sql.Tx, []Event[T]) error) {
	if handle == nil {
		OnBatch[T](c, eventType, nil)
		return
	}
	OnBatch(c, eventType, func(ctx context.Context, tx pgx.Tx, es []Event[T]) error {
		return sqltx.Lend(ctx, tx, func(lent *sql.Tx) error { return handle(ctx, lent, es) })
	})
}
