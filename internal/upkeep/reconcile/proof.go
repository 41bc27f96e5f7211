package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// ErrStreamOver cuts a round off: what it waited for belongs to a session that has ended.
var ErrStreamOver = errors.New("the session ended")

// Mark is a token in the WAL, written after rows were seen. The stream is in commit order, so when it has delivered the
// mark, it has delivered those rows, or it never will.
type Mark struct {
	token  string
	commit atomic.Uint64 // LSN of its commit record, once delivered
	end    atomic.Uint64 // LSN behind it; then all before it is in the ledger
}

// Is reports whether a logical message of ours with that content is the mark.
func (m *Mark) Is(content []byte) bool { return m.token == string(content) }

// Delivered takes in that the stream has delivered the mark, in the transaction that committed there.
func (m *Mark) Delivered(commit outbox.LSN) { m.commit.Store(uint64(commit)) }

// Ended takes in that the ledger has the mark's transaction, which ends there.
func (m *Mark) Ended(end outbox.LSN) { m.end.Store(uint64(end)) }

// prove finds out which of the rows the stream has missed, publishes them in the table's order, waits until they are
// recorded, and says how many they were.
func (c *Reconciler) prove(ctx context.Context, s Stream, ids [][]byte) (missed int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	// What an earlier session's round published and nothing has recorded yet would look missed.
	if err := c.recorded(ctx, s); err != nil {
		return 0, err
	}
	m := &Mark{token: fmt.Sprintf("W/%d/%016x", s.Epoch(), rand.Uint64())}
	s.Mark(m)
	defer s.Mark(nil)
	if _, err := c.tables.EmitToken(ctx, store.TokenPrefix, m.token); err != nil {
		return 0, err
	}
	err = c.wait(ctx, s, func() bool {
		end := m.end.Load()
		return end != 0 && s.Passed(outbox.LSN(end))
	})
	if err != nil {
		return 0, err
	}
	for {
		rows, err := c.tables.LateRows(ctx, ids, latePage)
		if err != nil || len(rows) == 0 {
			return missed, err
		}
		c.alarm(missed, rows)
		if err := s.SendLate(ctx, rows, outbox.LSN(m.commit.Load()), uint32(missed)); err != nil {
			return missed, err
		}
		missed += len(rows)
		c.host.Published(len(rows))
		if err := c.recorded(ctx, s); err != nil {
			return missed, err
		}
	}
}

// alarm says what was found, once per proof.
func (c *Reconciler) alarm(before int, rows []store.CatchUpRow) {
	c.host.Missed(len(rows))
	if before > 0 {
		return
	}
	c.log.Error().Str("first_id", string(rows[0].Event.ID)).Int("rows", len(rows)).
		Msg("committed rows were never delivered by the stream; publishing them now, marked x-outbox-late: find out who " +
			"changed the publication, the table or the slot")
}

// recorded waits until nothing that a round has published is in flight.
func (c *Reconciler) recorded(ctx context.Context, s Stream) error {
	return c.wait(ctx, s, func() bool { return c.host.LateInFlight() == 0 })
}

func (c *Reconciler) wait(ctx context.Context, s Stream, done func() bool) error {
	ticker := time.NewTicker(markLook)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-s.Over():
			return ErrStreamOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
