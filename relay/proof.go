package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/store"
)

// errSessionOver cuts a round off: what it waited for belongs to a session that has ended.
var errSessionOver = errors.New("the session ended")

// mark is a token in the WAL, written after rows were seen. The stream is in commit order, so when it has delivered the
// mark, it has delivered those rows, or it never will.
type mark struct {
	token  string
	commit atomic.Uint64 // LSN of its commit record, once delivered
	end    atomic.Uint64 // LSN behind it; then all before it is in the ledger
}

// lateRows are rows that the stream has missed, for the dispatcher to send.
type lateRows struct {
	rows  []store.CatchUpRow
	at    outbox.LSN    // their place in the order: that of the mark, after which they are published
	index uint32        // of the first
	taken chan struct{} // closed when they are in flight
}

// prove finds out which of the rows the stream has missed, publishes them in the table's order, waits until they are
// recorded, and says how many they were.
func (c *reconciler) prove(ctx context.Context, s *session, ids [][]byte) (missed int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	// What an earlier session's round published and nothing has recorded yet would look missed.
	if err := c.recorded(ctx, s); err != nil {
		return 0, err
	}
	m := &mark{token: fmt.Sprintf("W/%d/%016x", s.epoch, rand.Uint64())}
	s.mark.Store(m)
	defer s.mark.Store(nil)
	if _, err := c.r.store.EmitToken(ctx, tokenPrefix, m.token); err != nil {
		return 0, err
	}
	err = c.wait(ctx, s, func() bool {
		end := m.end.Load()
		return end != 0 && s.ledger.Confirmed() >= outbox.LSN(end)
	})
	if err != nil {
		return 0, err
	}
	for {
		rows, err := c.r.store.LateRows(ctx, ids, latePage)
		if err != nil || len(rows) == 0 {
			return missed, err
		}
		c.alarm(missed, rows)
		late := lateRows{rows: rows, at: outbox.LSN(m.commit.Load()), index: uint32(missed), taken: make(chan struct{})}
		if err := late.hand(ctx, s); err != nil {
			return missed, err
		}
		missed += len(rows)
		c.r.metrics.reconciled.Add(float64(len(rows)))
		if err := c.recorded(ctx, s); err != nil {
			return missed, err
		}
	}
}

// hand gives the rows to the dispatcher, and returns when they are in flight.
func (l lateRows) hand(ctx context.Context, s *session) error {
	to, taken := s.late, (chan struct{})(nil)
	for {
		select {
		case to <- l:
			to, taken = nil, l.taken
		case <-taken:
			return nil
		case <-s.over:
			return errSessionOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// alarm says what was found, once per proof.
func (c *reconciler) alarm(before int, rows []store.CatchUpRow) {
	c.r.health.Reconciled(len(rows))
	if before > 0 {
		return
	}
	c.r.log.Error().Str("first_id", string(rows[0].Event.ID)).Int("rows", len(rows)).
		Msg("committed rows were never delivered by the stream; publishing them now, marked x-outbox-late: find out who changed the publication, the table or the slot")
}

// recorded waits until nothing that a round has published is in flight.
func (c *reconciler) recorded(ctx context.Context, s *session) error {
	return c.wait(ctx, s, func() bool { return c.term.inflight.Late() == 0 })
}

func (c *reconciler) wait(ctx context.Context, s *session, done func() bool) error {
	ticker := time.NewTicker(markLook)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-s.over:
			return errSessionOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// sendLate hands rows that the stream has missed to the sink, in the order given.
func (s *session) sendLate(ctx context.Context, late lateRows) error {
	now := time.Now()
	s.router.At(now)
	var out []*settle.Delivery
	for i := range late.rows {
		d := s.next()
		s.use()
		d.Event, d.Received, d.Late = late.rows[i].Event, settle.SinceStart(now), true
		d.Event.Position = outbox.Position{Epoch: s.state.Era, Order: uint64(late.at), Index: late.index + uint32(i)}
		encode(s.router, d)
		keep(s.router, d)
		out = append(out, d)
	}
	err := s.send(ctx, out)
	close(late.taken)
	return err
}
