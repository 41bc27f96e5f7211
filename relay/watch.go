package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
)

const (
	progressEvery = time.Second      // the state row is written at most this often, and only after events were settled
	deadEvery     = 10 * time.Second // open dead letters are counted this often
	slotEvery     = 2 * time.Second  // pg_replication_slots is read this often, and more often where the lease needs it
)

// watch keeps the state row and the gauges that come from the database up to date. It is the state row's one writer
// between take-over and clean stop.
func (r *Relay) watch(ctx context.Context) {
	look := min(slotEvery, r.proofValid()/3)
	ticker := time.NewTicker(min(progressEvery, look))
	defer ticker.Stop()
	var saved outbox.LSN
	var settled, seen, moved uint64
	var away bool
	var changed, wrote, looked, compared, counted time.Time
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		r.noteMoves(&moved)
		r.noteBroker(&away)
		s := r.session.Load()
		if time.Since(looked) >= look && (s != nil || r.health.role() != RoleStandby) {
			looked = time.Now()
			r.lookAtDatabase(ctx, s)
		}
		if s != nil && time.Since(counted) >= deadEvery {
			counted = time.Now()
			r.countStored(ctx)
			r.keepClock(ctx)
		}
		role := r.health.role()
		if s == nil || role != RoleActive && role != RoleCatchUp {
			continue
		}
		n := r.metrics.settledEvents.Load()
		if n != seen {
			seen, changed = n, time.Now()
		}
		if (n != settled || r.deletes(time.Since(changed))) && time.Since(wrote) >= progressEvery {
			wrote = time.Now()
			// Only after events: confirming keepalives is no reason to write, or an idle relay would keep itself busy
			// with the WAL of its own notes. The topics go on while one event, or a catch-up, holds back the position.
			at := s.ledger.Confirmed()
			err := r.saveOffsets(ctx)
			if err == nil && role == RoleActive && at > saved {
				if err = r.store.SaveProgress(ctx, at); err == nil {
					saved, settled = at, n
				}
			}
			if err != nil && ctx.Err() == nil {
				s.heed(err)
				r.log.Debug().Err(err).Msg("cannot save progress")
			}
		}
		if role == RoleActive && time.Since(compared) >= time.Duration(r.c.Drift.Interval) {
			compared = time.Now()
			r.lookForDrift(ctx, s)
		}
	}
}

// countStored refreshes what is known of dead letters and parked events; people and other processes change them, too.
func (r *Relay) countStored(ctx context.Context) {
	owner := r.owner()
	n, err := r.store.CountDead(ctx)
	if err == nil {
		r.metrics.openDead.set(n)
	}
	owner.heed(err)
	if r.Parked() == 0 {
		r.oldestParked.Store(0)
		return
	}
	at, err := r.store.OldestParked(ctx)
	if err == nil && !at.IsZero() {
		r.oldestParked.Store(at.UnixMicro())
	}
	owner.heed(err)
}

// deletableAfter is how long after the last event its position is still noted: its journal row lies behind it in the WAL.
const deletableAfter = 10 * time.Second

// deletes says that rows wait to be deleted, the last of them journaled so long ago: they do so only below the position
// that is saved.
func (r *Relay) deletes(quiet time.Duration) bool {
	if r.c.Outbox.AfterPublish == config.AfterPublishDelete {
		return r.rowsLeft.Load() > 0
	}
	return r.c.Outbox.Retention > 0 && quiet < deletableAfter
}

// saveOffsets notes how far the topics are recorded. It may be behind the truth at any time, as the position that is saved may be: a
// start after a crash then only looks at more.
func (r *Relay) saveOffsets(ctx context.Context) error {
	offsets := r.settler.frontier.take()
	err := r.store.SaveOffsets(ctx, offsets)
	if err != nil {
		r.settler.frontier.giveBack(offsets)
	}
	return err
}

// lookAtDatabase refreshes the lease, and what the metrics show of the slot and the mirror. Without a session it goes on to
// look at the slot: WAL is kept while the relay is halted, too.
func (r *Relay) lookAtDatabase(ctx context.Context, s *session) {
	bounded, cancel := context.WithTimeout(ctx, slotEvery)
	defer cancel()
	asked, owner := time.Now(), r.owner()
	slot, err := r.store.Slot(bounded)
	if err != nil {
		owner.heed(err)
		return
	}
	r.metrics.slot.Store(&slotLook{slot, asked})
	r.unread.note(asked, slot.WALEnd)
	if s == nil {
		return
	}
	r.checkLease(s, s == owner, slot, asked)
	n, err := r.store.MirrorLag(bounded)
	if err != nil {
		owner.heed(err)
		return
	}
	r.metrics.mirrorLag.set(n)
	r.rowsLeft.Store(n)
}
