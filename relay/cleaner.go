package relay

import (
	"context"
	"time"
)

const (
	cleanEvery = time.Minute            // between two rounds of pruning
	cleanStep  = 1000                   // journal rows removed in one transaction
	cleanPause = 100 * time.Millisecond // between two transactions, so that others get their turn
)

// cleaner prunes the journal: rows that are older than their retention and that nothing needs any more.
func (r *Relay) cleaner(ctx context.Context) {
	for sleep(ctx, cleanEvery) {
		for more := true; more && r.session.Load() != nil && r.health.role() == RoleActive && !r.behind(); {
			var err error
			if _, more, err = r.store.Prune(ctx, time.Duration(r.c.Journal.Retention), cleanStep); err != nil {
				if ctx.Err() == nil {
					r.log.Debug().Err(err).Msg("cannot prune the journal now")
				}
				break
			}
			if !sleep(ctx, cleanPause) {
				return
			}
		}
	}
}
