package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/blockers"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
)

// This file sends rows that come from the table, not from the stream: those older than the slot, and those that the
// stream has missed. It is the session's, as the dispatcher is, which runs beside none of it.

const (
	catchUpPage = 500 // rows read at once; the store also bounds their bytes
	// barrierPatience bounds the snapshot's wait for transactions that ran before the slot was consistent.
	barrierPatience = 30 * time.Second
)

// catchUp publishes the rows that are older than the slot, in table order, before the stream is read. The slot exists
// and holds everything newer; what both have is found in the journal when the stream delivers it. A crash at any point
// leaves phase catch_up behind, and the next start goes on where the journal ends. With outbox.catch_up: false the
// older rows are in the journal as a baseline, and only those that came between the baseline and the slot are left.
func (s *session) catchUp(ctx context.Context) error {
	r := s.r
	s.term.enter(RoleCatchUp)
	progress := listed{left: -1}
	if !s.state.CatchUpReady {
		// An event in flight has its place in the former era: parked after the snapshot it would be in front of all.
		if err := s.drained(ctx); err != nil {
			return err
		}
		var err error
		if progress.left, err = s.snapshot(ctx); err != nil {
			return err
		}
	}
	sent, after := 0, uint64(0)
	for {
		rows, err := r.store.CatchUpRows(ctx, after, catchUpPage)
		if err != nil {
			return fmt.Errorf("read older rows: %w", err)
		}
		progress.read(rows, s.term.inflight.Len())
		r.meter.Database.RowsLeft(progress.left, progress.oldest(time.Duration(s.ahead.Load())))
		if len(rows) == 0 {
			break
		}
		if err := r.pausing.Wait(ctx); err != nil {
			return err
		}
		if err := s.term.settler.AwaitBreaker(ctx); err != nil {
			return err
		}
		if err := s.sendRows(ctx, rows); err != nil {
			return err
		}
		sent, after = sent+len(rows), rows[len(rows)-1].Row
	}
	if err := s.drained(ctx); err != nil { // a row is done when its outcome is recorded; nothing else is in flight
		return err
	}
	return s.caughtUp(ctx, sent)
}

// drained waits until the outcome of all that is in flight is recorded.
func (s *session) drained(ctx context.Context) error {
	select {
	case <-s.term.inflight.Drained():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// snapshot fixes which rows the catch-up publishes, once every transaction that the slot does not hold has ended.
func (s *session) snapshot(ctx context.Context) (rows int64, err error) {
	open, err := s.r.store.Barrier(ctx, barrierPatience)
	if err != nil {
		return 0, fmt.Errorf("wait for older transactions: %w", err)
	}
	for _, b := range open {
		s.r.log.Warn().Str("blocker", b.String()).Msg("a transaction older than the slot still runs; " +
			"what it commits before the slot's position is published late, by the reconciler")
	}
	if len(open) > 0 {
		save := s.r.store.SaveHorizon
		if s.r.outboxes != nil {
			save = s.r.outboxes.SaveHorizons
		}
		if err := save(ctx, blockers.Begin(open, barrierPatience/2)); err != nil {
			return 0, err
		}
	}
	left, err := s.r.store.ReusedAside(ctx, unsureNamed)
	if err != nil {
		return 0, err
	}
	s.leftAside(left)
	if rows, err = s.r.store.SnapshotCatchUp(ctx); err != nil {
		return 0, fmt.Errorf("take the catch-up's snapshot: %w", err)
	}
	s.state.Era = s.epoch
	if err := s.learn(); err != nil {
		return 0, err
	}
	s.r.log.Info().Int64("rows", rows).Msg("catching up: publishing rows that are older than the slot")
	return rows, nil
}

// listed is how far a catch-up is, for the figures.
type listed struct {
	left  int64        // rows that were not handed in yet, at most; -1: not known
	pages []listedPage // whose rows may be in flight, and last the one that is handed in next
	rows  int          // of pages
}

type listedPage struct {
	rows   int
	oldest time.Time // when the oldest of them was made; zero: not known
}

// read takes in the next rows, while so many of those before are in flight.
func (l *listed) read(rows []store.CatchUpRow, inFlight int) {
	if n := len(l.pages); n > 0 && l.left >= 0 {
		l.left = max(l.left-int64(l.pages[n-1].rows), 0)
	}
	for len(l.pages) > 0 && l.rows-l.pages[0].rows >= inFlight {
		l.rows -= l.pages[0].rows
		l.pages = l.pages[1:]
	}
	page := listedPage{rows: len(rows)}
	for i := range rows {
		made, err := outbox.ParseTimestamp(rows[i].Event.CreatedAt)
		if err == nil && (page.oldest.IsZero() || made.Before(page.oldest)) {
			page.oldest = made
		}
	}
	l.pages, l.rows = append(l.pages, page), l.rows+page.rows
}

// oldest is when the oldest row was made that is not published, as far as rows are listed in that order: by our clock,
// which the server's is ahead of.
func (l *listed) oldest(ahead time.Duration) (at time.Time) {
	for _, p := range l.pages {
		if by := p.oldest.Add(-ahead); !p.oldest.IsZero() && (at.IsZero() || by.Before(at)) {
			at = by
		}
	}
	return at
}

func (s *session) sendRows(ctx context.Context, rows []store.CatchUpRow) error {
	if err := s.learn(); err != nil {
		return err
	}
	now := time.Now()
	gone, err := s.goneRows(ctx, rows)
	if err != nil {
		return err
	}
	var out []*settle.Delivery
	for i := range rows {
		if s.known.Has(rows[i].Event.Source, rows[i].Event.ID) || gone[rows[i].Event.Identity()] {
			continue // in flight since an earlier session of this process, or journaled now
		}
		d := s.next()
		s.use()
		d.Event, d.Received, d.Late = rows[i].Event, settle.SinceStart(now), s.state.CatchUpLate
		d.Reused, d.Listed = rows[i].Reused, rows[i].Listed
		x := s.of(&d.Event)
		d.Event.Position = outbox.Position{Epoch: x.state.Era, Table: true, Order: rows[i].Row}
		if _, err := s.awaitSchema(ctx, nil, &d.Event); err != nil {
			return err
		}
		x.encode(d, now)
		keep(x.router, d)
		out = append(out, d)
	}
	return s.send(ctx, out)
}

// goneRows journals what was sent before and is gone, and lists it; see [recovery.Sent].
func (s *session) goneRows(ctx context.Context, rows []store.CatchUpRow) (map[outbox.Identity]bool, error) {
	if s.term.sent.Empty() || s.state.CatchUpLate {
		return nil, nil
	}
	var gone []store.Published
	listed := map[outbox.Identity]bool{}
	for i := range rows {
		e := rows[i].Event
		e.Position = outbox.Position{Epoch: s.of(&e).state.Era, Table: true, Order: rows[i].Row}
		if s.known.Has(e.Source, e.ID) {
			continue
		}
		if _, err := s.awaitSchema(ctx, nil, &e); err != nil {
			return nil, err
		}
		if p, is := s.gone(&e); is {
			gone, listed[e.Identity()] = append(gone, p), true
		}
	}
	return listed, s.journalGone(ctx, gone)
}

// caughtUp commits the end of the catch-up. The stream repeats some of it, so the look-ups stay on until the token.
func (s *session) caughtUp(ctx context.Context, rows int) error {
	if err := s.r.store.FinishCatchUp(ctx); err != nil {
		return fmt.Errorf("finish the catch-up: %w", err)
	}
	s.state.Phase, s.state.Dirty, s.state.CatchUpLate = store.Stream, true, false
	s.setTableFirst(false)
	s.r.caughtUp.Add(int64(rows))
	s.r.log.Info().Int("rows", rows).Msg("caught up; the stream takes over")
	return nil
}

// ReconcileReport is the result of Reconcile.
type ReconcileReport = reconcile.Report

// DryReport is the result of AuditDry.
type DryReport = reconcile.DryReport

// AuditDry checks the whole table as the reconciler does, and publishes nothing. While a relay streams it proves which
// rows were missed: it reads the table, waits at most patience until the slot has confirmed the end of the WAL, and
// reads again. It writes one message into the WAL, so that there is something to confirm. Without a relay it can only
// count rows that are not recorded, which may still be to come.
func AuditDry(ctx context.Context, tables Tables, patience time.Duration) (DryReport, error) {
	return reconcile.DryRun(ctx, tables, patience)
}

// Reconcile checks the whole table and publishes rows that the stream missed. It waits until this relay streams, and
// until everything that was committed before the check is recorded.
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

// sendLate hands rows that the stream has missed to the sink, in the order given. Stopped: a stop came first, and none
// is handed in; the next session finds them again.
func (s *session) sendLate(ctx context.Context, stop <-chan struct{}, late lateRows) (stopped bool, err error) {
	if err := s.learn(); err != nil {
		return false, err
	}
	now := time.Now()
	var out []*settle.Delivery
	for i := range late.rows {
		d := s.next()
		s.use()
		d.Event, d.Received, d.Late = late.rows[i].Event, settle.SinceStart(now), true
		d.Reused = late.rows[i].Reused
		x := s.of(&d.Event)
		d.Event.Position = outbox.Position{Epoch: x.state.Era, Order: uint64(late.at), Index: late.index + uint32(i)}
		if stopped, err := s.awaitSchema(ctx, stop, &d.Event); stopped || err != nil {
			return stopped, err
		}
		x.encode(d, now)
		keep(x.router, d)
		out = append(out, d)
	}
	err = s.send(ctx, out)
	close(late.taken)
	return false, err
}
