package relay

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

// retention deletes published rows that are older than outbox.retention, where they are not deleted at once anyway.
func (t *term) retention(ctx context.Context) {
	keep := time.Duration(t.r.c.Outbox.Retention)
	if keep == 0 || t.r.c.Outbox.AfterPublish == config.AfterPublishDelete { // the mirror does it
		return
	}
	for sleep(ctx, retentionPause(keep)) {
		if !t.clean(ctx, "the outbox", func(limit int) (int, bool, error) { return t.r.store.DeleteStep(ctx, keep, limit) }) {
			return
		}
	}
}

// cleaner prunes the journal, dead letters that somebody has resolved, and requests that are done: rows that are older than
// their retention and that nothing needs any more.
func (t *term) cleaner(ctx context.Context) {
	for sleep(ctx, cleanEvery) {
		if !t.clean(ctx, "the journal", func(limit int) (int, bool, error) {
			return t.r.store.Prune(ctx, time.Duration(t.r.c.Journal.Retention), limit)
		}) {
			return
		}
		if t.r.c.DLQ.Retention > 0 && !t.clean(ctx, "the dead letters", func(limit int) (int, bool, error) {
			return t.r.store.PruneDead(ctx, time.Duration(t.r.c.DLQ.Retention), limit)
		}) {
			return
		}
		if !t.clean(ctx, "finished requests", func(limit int) (int, bool, error) { return t.r.store.PruneRequests(ctx, requestsKept, limit) }) {
			return
		}
	}
}

// clean prunes one table in small steps while events do not wait; false: the context has ended.
func (t *term) clean(ctx context.Context, what string, step func(limit int) (rows int, more bool, err error)) bool {
	for t.session.Load() != nil && t.r.health.role() == RoleActive && !t.behind() {
		owner := t.owner()
		_, more, err := step(cleanStep)
		if err != nil && ctx.Err() == nil {
			owner.heed(err)
			t.r.log.Debug().Err(err).Msg("cannot prune " + what + " now")
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
