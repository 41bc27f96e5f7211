package relay

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/offsets"
)

// noted keeps the positions that are saved.
type noted struct {
	Tables
	at []outbox.LSN
}

func (n *noted) SaveOffsets(context.Context, []store.Offset) error { return nil }

func (n *noted) SaveProgress(_ context.Context, at outbox.LSN) error {
	n.at = append(n.at, at)
	return nil
}

// Postgres is replaced by a standby that had got less of the WAL. Break it catches: progress compared with that on the
// server before, so that nothing is saved, deleted or pruned until the WAL has grown as far. Seen to fail with what was
// saved kept from session to session.
func TestProgressIsSavedAfterThePositionWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		r.c.Outbox.AfterPublish = config.AfterPublishDelete
		tables := &noted{}
		tm := idleTerm(t, r)
		r.store = tables
		w := &watch{r: r, term: tm, rowsLeft: 1}
		old, promoted := &session{ledger: offsets.New(1000)}, &session{ledger: offsets.New(10)}
		for _, s := range []*session{old, old, promoted, promoted} {
			time.Sleep(2 * progressEvery)
			w.saveProgress(t.Context(), s, RoleActive)
		}
		if want := []outbox.LSN{1000, 10}; !slices.Equal(tables.at, want) {
			t.Errorf("saved: got %v, want %v", tables.at, want)
		}
	})
}

// The last events before a quiet time are counted a moment before the ledger has them. Break it catches: a save between
// the two that is taken for one of all events, so that the last of them are not deleted until others come.
func TestProgressOfTheLastEventsIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := assemble(options{config: config.Default()})
		tables := &noted{}
		tm := idleTerm(t, r)
		r.store = tables
		w := &watch{r: r, term: tm}
		s := &session{ledger: offsets.New(1000)}
		s.ledger.Begin(1)
		last := s.ledger.Add()
		s.ledger.Commit(2000)
		r.meter.Outcomes.Journaled(1, 0)
		for range 3 {
			time.Sleep(2 * progressEvery)
			w.saveProgress(t.Context(), s, RoleActive)
		}
		s.ledger.Done(last)
		for range 3 {
			time.Sleep(2 * progressEvery)
			w.saveProgress(t.Context(), s, RoleActive)
		}
		if want := []outbox.LSN{1000, 2000}; !slices.Equal(tables.at, want) {
			t.Errorf("saved: got %v, want %v", tables.at, want)
		}
	})
}
