// Package blockers looks for transactions that never end: while one is open, no row whose event was journaled after it
// began is marked, deleted or pruned, and a prepared one that its coordinator has forgotten stays permanently. It names
// them, and ends none.
package blockers

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	// After is for how long a transaction may be open before it is told of.
	After = 10 * time.Minute
	// every is the pause between two looks.
	every = 30 * time.Second
	// knownFor is for how long what was found counts as known.
	knownFor = 3 * every
)

// Tables is the part of a [store.Store] that this package uses.
type Tables interface {
	OldTransactions(ctx context.Context, since time.Duration) ([]store.Blocker, error)
}

// Watch knows which transactions are old. One goroutine looks and forgets; any may call Found and Oldest.
type Watch struct {
	after time.Duration
	log   zerolog.Logger
	said  map[string]bool // of those that are open; the looking goroutine's
	next  time.Time       // not before then

	mu     sync.Mutex // guards what follows
	found  []store.Blocker
	looked time.Time // when it was found; zero: never
}

// New makes a watch for transactions that are open for longer.
func New(after time.Duration, log zerolog.Logger) *Watch {
	return &Watch{after: after, log: log, said: map[string]bool{}}
}

// Due reports whether it is time to look, and waits for the next time then.
func (w *Watch) Due() bool {
	now := time.Now()
	if now.Before(w.next) {
		return false
	}
	w.next = now.Add(every)
	return true
}

// Look reads which transactions are old, and logs each of them once, with what ends it.
func (w *Watch) Look(ctx context.Context, tables Tables) error {
	found, err := tables.OldTransactions(ctx, w.after)
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for _, b := range found {
		text := b.String()
		if open[text] = true; !w.said[text] {
			w.log.Warn().Str("transaction", text).Time("since", b.Since).
				Msg("a transaction is open: rows published since it began are neither marked nor deleted until it ends")
		}
	}
	w.said = open
	w.mu.Lock()
	w.found, w.looked = found, time.Now()
	w.mu.Unlock()
	return nil
}

// Forget drops what was found: another relay has the slot, and tells of it.
func (w *Watch) Forget() {
	w.mu.Lock()
	w.found, w.looked = nil, time.Time{}
	w.mu.Unlock()
}

// Found are the old transactions, the oldest first, each as text with what ends it.
func (w *Watch) Found() (texts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.found {
		texts = append(texts, b.String())
	}
	return texts
}

// Oldest is the age of the oldest of them, 0 without any; not known before the first look, or when that is long ago.
func (w *Watch) Oldest() (age time.Duration, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.found) > 0 {
		age = time.Since(w.found[0].Since)
	}
	return age, !w.looked.IsZero() && time.Since(w.looked) <= knownFor
}

// hiddenSince is for how long a transaction may have run whose begin this role may not see.
const hiddenSince = 24 * time.Hour

// Begin is a time before the begin of all of the transactions, which have been waited for longer than waited: their
// rows are looked for from there on.
func Begin(open []store.Blocker, waited time.Duration) time.Time {
	at := time.Now()
	for _, b := range open {
		since := b.Since
		if time.Since(since) < waited || since.IsZero() {
			since = time.Now().Add(-hiddenSince)
		}
		if since.Before(at) {
			at = since
		}
	}
	return at
}
