package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Held reports whether another process has the topic, and has said so within the lease.
func (l *Ledger) Held(ctx context.Context, holder string, at Place, lease time.Duration) (held bool, err error) {
	err = l.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+l.schema+`inbox_offset
		WHERE consumer = $1 AND topic = $2 AND partition = $3 AND holder <> $4 AND at > now() - $5 * interval '1 second')`,
		l.consumer, at.Topic, at.Partition, holder, lease.Seconds()).Scan(&held)
	if err != nil {
		return false, fmt.Errorf("look who reads topic %s: %w", at.Topic, err)
	}
	return held, nil
}

// Take is Starts for a topic that one process reads at a time. held reports that another one has it, and has said so
// within the lease; then nothing is changed. Two that take it at once can both succeed: Hold tells one of them.
func (l *Ledger) Take(
	ctx context.Context, holder string, p Partition, lease time.Duration,
) (s Start, held bool, err error) {
	read := p
	err = l.within(ctx, "take topic "+p.Topic, func(tx pgx.Tx) (err error) {
		err = tx.QueryRow(ctx, `SELECT holder <> $4 AND at > now() - $5 * interval '1 second'
			FROM `+l.schema+`inbox_offset WHERE consumer = $1 AND topic = $2 AND partition = $3 AND holder IS NOT NULL
			FOR UPDATE`, l.consumer, p.Topic, p.Partition, holder, lease.Seconds()).Scan(&held)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) || held {
			return err
		}
		s, err = l.start(ctx, tx, holder, p)
		return err
	})
	if s.Known {
		read.Next = s.Next
	}
	if err == nil && !held {
		l.read([]Partition{read})
	}
	return s, held, err
}

// Hold says that the holder still reads the topic, and reports whether no other one has taken it.
func (l *Ledger) Hold(ctx context.Context, holder string, at Place) (mine bool, err error) {
	err = l.within(ctx, "hold topic "+at.Topic, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE `+l.schema+`inbox_offset SET at = now()
			WHERE consumer = $1 AND topic = $2 AND partition = $3 AND holder = $4`,
			l.consumer, at.Topic, at.Partition, holder)
		mine = tag.RowsAffected() > 0
		return err
	})
	return mine, err
}

// Rewind sets an offset back, for a topic that ends below it. What this process has read of it before is gone then, so
// its next statement returns ErrSetBack, and the caller begins again from there.
func (l *Ledger) Rewind(ctx context.Context, at Place, next int64) error {
	_, err := l.pool.Exec(ctx, "SELECT "+l.schema+"inbox_rewind($1, $2, $3, $4)", l.name, at.Topic, at.Partition, next)
	if err != nil {
		return fmt.Errorf("rewind topic %s: %w", at.Topic, err)
	}
	return nil
}
