package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay/internal/reconcile"
	"github.com/cdc-relay/cdc-relay/relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/store"
)

// ReconcileReport is what a look at the whole table found.
type ReconcileReport = reconcile.Report

// DryReport is what a look from outside found.
type DryReport = reconcile.DryReport

// AuditDry looks at the whole table, as the reconciler does, and publishes nothing. While a relay streams it proves
// what was missed: it waits, at most for the patience given, until the slot has confirmed the end of WAL after the
// look, and looks again. It writes nothing but one message into the WAL, so that there is something to be confirmed.
// Without a relay it can only count: what is not recorded may be still to come.
func AuditDry(ctx context.Context, tables Tables, patience time.Duration) (DryReport, error) {
	return reconcile.DryRun(ctx, tables, patience)
}

// Reconcile looks at the whole table at once and publishes what the stream has missed. It waits until this relay
// streams, and until everything that was committed before the look is recorded.
func (r *Relay) Reconcile(ctx context.Context) (ReconcileReport, error) {
	report, err := r.reconciler.Order(ctx)
	if ctx.Err() == nil {
		report.CaughtUp = int(r.caughtUp.Load())
	}
	return report, err
}

// lateRows are rows that the stream has missed, for the dispatcher to send.
type lateRows struct {
	rows  []store.CatchUpRow
	at    outbox.LSN    // their place in the order: that of the mark, after which they are published
	index uint32        // of the first
	taken chan struct{} // closed when they are in flight
}

// SendLate gives the rows to the dispatcher, and returns when they are in flight.
func (x reconcileStream) SendLate(ctx context.Context, rows []store.CatchUpRow, at outbox.LSN, index uint32) error {
	late := lateRows{rows: rows, at: at, index: index, taken: make(chan struct{})}
	to, taken := x.s.late, (chan struct{})(nil)
	for {
		select {
		case to <- late:
			to, taken = nil, late.taken
		case <-taken:
			return nil
		case <-x.s.over:
			return reconcile.ErrStreamOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
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
