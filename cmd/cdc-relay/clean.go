package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// cleaner deletes what is older than its retention, step by step, until nothing more is due: what a running relay does
// a little at a time.
type cleaner struct {
	store   *store.Store
	spooled int64         // events
	batch   int           // rows of one transaction, about
	pause   time.Duration // between two transactions
	tell    func(string)  // is shown how far it is, an empty line at the end
}

// retentions returns the configured retentions.
func retentions(c config.Config) (outbox, journal, dead time.Duration) {
	return time.Duration(c.Outbox.Retention), time.Duration(c.Journal.Retention), time.Duration(c.DLQ.Retention)
}

// due counts what could be deleted, at most.
func (c cleaner) due(ctx context.Context, cfg config.Config) (store.Cleanable, error) {
	outbox, journal, dead := retentions(cfg)
	due, err := c.store.Cleanable(ctx, outbox, journal, dead)
	if c.spooled > 0 {
		due.Journal, due.Dead = 0, 0
	}
	return due, err
}

// run deletes what is due, which is about as much as due has counted, and returns how much that was, also with an
// error.
func (c cleaner) run(ctx context.Context, cfg config.Config, due store.Cleanable) (done store.Cleanable, err error) {
	defer c.tell("")
	outbox, journal, dead := retentions(cfg)
	st := c.store
	deletes := func() (int, bool, error) { return st.DeleteStep(ctx, outbox, c.batch) }
	if err := c.all(ctx, "outbox rows", due.Outbox, &done.Outbox, deletes); err != nil {
		return done, err
	}
	if c.spooled > 0 { // they are looked up in journal and dead letters before they are sent
		return done, nil
	}
	prunes := func() (int, bool, error) { return st.Prune(ctx, journal, c.batch) }
	if err := c.all(ctx, "journal rows", due.Journal, &done.Journal, prunes); err != nil {
		return done, err
	}
	if dead == 0 {
		return done, nil
	}
	forgets := func() (int, bool, error) { return st.PruneDead(ctx, dead, c.batch) }
	return done, c.all(ctx, "dead letters", due.Dead, &done.Dead, forgets)
}

const (
	stepPatience = time.Minute // while each step fails for something else than a lock
	stepAgain    = time.Second // before the next step then, at least
)

// all repeats a step until nothing is left. A lock that another session holds is waited for, for as long as the person
// likes.
func (c cleaner) all(ctx context.Context, what string, about int64, done *int64, step func() (int, bool, error)) error {
	var failing time.Time // since when
	for more := true; more; {
		rows, left, err := step()
		pause := c.pause
		switch {
		case err == nil:
			failing = time.Time{}
		case !store.IsTransient(err):
			return err
		case store.IsLock(err):
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) >= stepPatience:
			return fmt.Errorf("%s: no step has succeeded for %v; if each takes too long, give a smaller --batch: %w", what,
				stepPatience, err)
		}
		if !failing.IsZero() {
			pause = max(pause, stepAgain)
		}
		more = left || err != nil
		*done += int64(rows)
		c.tell(fmt.Sprintf("%s: %d of about %d", what, *done, max(about, *done)))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
