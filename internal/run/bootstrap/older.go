package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
)

const (
	// olderPatience bounds how long all rows that wait are counted, for a person to know.
	olderPatience = 30 * time.Second
	// olderAgain is how long that number is good for: a halted relay looks every few seconds, and each count reads the
	// table.
	olderAgain = 5 * time.Minute
)

// OlderRows is how many rows waited for a first start that is not allowed so many. One goroutine at a time uses it.
type OlderRows struct {
	at   time.Time // of the count; zero before the first
	rows int64     // -1: it took too long
}

// countOlderRows refuses to publish more rows that are older than the slot than was allowed.
func (s Setup) countOlderRows(ctx context.Context) error {
	limit := int64(s.Config.Outbox.CatchUpMax)
	if limit == 0 || !s.Config.Outbox.CatchUp {
		return nil
	}
	n, err := s.Store.CountUnrecorded(ctx, limit+1)
	if err != nil {
		return explainStore(err)
	}
	if n <= limit {
		return nil
	}
	older := s.Older
	if older == nil {
		older = new(OlderRows)
	}
	if time.Since(older.at) > olderAgain {
		if err := older.count(ctx, s.Store); err != nil {
			return explainStore(err)
		}
	}
	return &halt.Error{Code: halt.CatchUpTooLarge,
		Reason: fmt.Sprintf("the outbox %s holds %s, and this is the first start", s.Config.Outbox.Named(),
			older.said(limit)),
		Risk: "publishing them may be unwanted (another worker may have published them already); no slot was created yet",
		Remedy: "to publish them set outbox.catch_up_max higher (0: no limit); if they count as published, set " +
			"outbox.published_when, or outbox.catch_up: false"}
}

func (o *OlderRows) count(ctx context.Context, tables Tables) error {
	bounded, cancel := context.WithTimeout(ctx, olderPatience)
	defer cancel()
	n, err := tables.CountUnrecorded(bounded, 0)
	switch {
	case err == nil:
		o.rows = n
	case bounded.Err() != nil && ctx.Err() == nil:
		o.rows = -1
	default:
		return err
	}
	o.at = time.Now()
	return nil
}

// said is the number of rows in words. Some may be gone since the count, down to the limit.
func (o *OlderRows) said(limit int64) string {
	if o.rows <= limit {
		return fmt.Sprintf("more than outbox.catch_up_max = %d rows that are not published", limit)
	}
	return fmt.Sprintf("%d rows that are not published (counted at %s), more than outbox.catch_up_max = %d",
		o.rows, o.at.UTC().Format(time.RFC3339), limit)
}
