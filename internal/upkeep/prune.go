package upkeep

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

const (
	cleanEvery = time.Minute            // between two rounds of pruning
	cleanStep  = 1000                   // rows removed in one transaction
	cleanPause = 100 * time.Millisecond // between two transactions, so that others get their turn

	// requestsKept is how long finished requests tell who did what: a quarter of a year, which most audits look back.
	requestsKept = 90 * 24 * time.Hour
)

// Retention deletes published rows that are older than outbox.retention, where they are not deleted at once anyway.
func (k *Keeper) Retention(ctx context.Context) {
	keep := time.Duration(k.c.Outbox.Retention)
	if keep == 0 || k.c.Outbox.AfterPublish == config.AfterPublishDelete { // the mirror does it
		return
	}
	for sleep(ctx, retentionPause(keep)) {
		if !k.prune(ctx, "the outbox", func(limit int) (int, bool, error) {
			return k.tables.DeleteStep(ctx, keep, limit)
		}) {
			return
		}
	}
}

// Prune prunes the journal, dead letters that someone has resolved, and requests that are done: rows that are older
// than their retention and that nothing needs any more.
func (k *Keeper) Prune(ctx context.Context) {
	for sleep(ctx, cleanEvery) {
		if !k.prune(ctx, "the journal", func(limit int) (int, bool, error) {
			return k.tables.Prune(ctx, time.Duration(k.c.Journal.Retention), limit)
		}) {
			return
		}
		if k.c.DLQ.Retention > 0 && !k.prune(ctx, "the dead letters", func(limit int) (int, bool, error) {
			return k.tables.PruneDead(ctx, time.Duration(k.c.DLQ.Retention), limit)
		}) {
			return
		}
		if !k.prune(ctx, "finished requests", func(limit int) (int, bool, error) {
			return k.tables.PruneRequests(ctx, requestsKept, limit)
		}) {
			return
		}
	}
}

// prune prunes one table in small steps while events do not wait; false: the context has ended.
func (k *Keeper) prune(ctx context.Context, what string, step func(limit int) (rows int, more bool, err error)) bool {
	for k.host.HoldsSlot() && k.host.Active() && !k.host.Behind() {
		told := k.host.Owner()
		_, more, err := step(cleanStep)
		if err != nil && ctx.Err() == nil {
			told(err)
			k.log.Debug().Err(err).Msg("cannot prune " + what + " now")
		}
		if err != nil || !more {
			break
		}
		if !sleep(ctx, cleanPause) {
			return false
		}
	}
	return ctx.Err() == nil
}
