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

// reconcileHost is a term as package reconcile sees it.
type reconcileHost struct{ t *term }

// Stream is the session in which a round may begin: this process holds the slot, reads the stream, and what came again
// after the start is over.
func (h reconcileHost) Stream() reconcile.Stream {
	s := h.t.session.Load()
	if s == nil || s.passed.Load() == 0 || h.t.stopping.Load() || h.t.r.health.Role() != RoleActive {
		return nil
	}
	return reconcileStream{s}
}

func (h reconcileHost) Behind() bool       { return h.t.behind() }
func (h reconcileHost) LateInFlight() int  { return h.t.inflight.Late() }
func (h reconcileHost) Settled() uint64    { return h.t.r.meter.Outcomes.Settled() }
func (h reconcileHost) Missed(rows int)    { h.t.r.health.Reconciled(rows) }
func (h reconcileHost) Published(rows int) { h.t.r.meter.Stream.Reconciled.Add(float64(rows)) }

func (h reconcileHost) Clean(began time.Time) {
	h.t.r.meter.Database.Audited(began)
	h.t.r.health.Reconciled(0)
}

// reconcileStream is a session as package reconcile sees it.
type reconcileStream struct{ s *session }

func (x reconcileStream) Epoch() int64              { return x.s.epoch }
func (x reconcileStream) Mark(m *reconcile.Mark)    { x.s.mark.Store(m) }
func (x reconcileStream) Passed(at outbox.LSN) bool { return x.s.ledger.Confirmed() >= at }
func (x reconcileStream) Over() <-chan struct{}     { return x.s.over }
func (x reconcileStream) Heed(err error)            { x.s.heed(err) }

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
