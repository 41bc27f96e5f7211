package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/restart"
	"github.com/cdc-relay/cdc-relay/internal/run/spool"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/replication"
)

// This file has the stream stored while it cannot be sent; see package spool. The watch asks for that by ending the
// session (considerSpool). The next one gets everything that is unconfirmed again, stores it from its beginning on,
// and dispatches what is stored in the place of the stream, until there is no more of it. Nothing else about an event
// is different: what comes again is looked up until the token, which is stored as all of the stream is, has passed.

// openSpool begins to store the stream if that was asked for, or if something is spooled. The token is written before,
// so that what comes after it is not looked up. While the table comes first, only what is spooled already is read.
func (s *session) openSpool(ctx, working context.Context, table store.Outbox) error {
	state, err := s.r.store.OpenSpool(ctx)
	if err != nil {
		return err
	}
	tableFirst := s.state.Phase == store.CatchUp
	if state.Empty() && (tableFirst || !s.term.spools.Load()) {
		s.spooled.Store(false)
		return nil
	}
	o := spool.Options{
		Tables: s.r.store, Logger: s.r.log, State: state, Era: s.state.Era,
		Outbox: table.OIDs, Root: table.OID,
		Decoder: decoder.New(s.decoding), Prefix: tokenPrefix, Stored: s.ledger.Keepalive,
		Flows: s.flows, Called: s.spoolCalled, Fail: func(err error) { s.fail(spoolBroken(err)) },
	}
	s.lookup = true
	s.lookingUp.Store(true)
	if !tableFirst {
		if err := s.emitToken(ctx); err != nil {
			return err
		}
		o.Stream, s.heard = s.stream.Batches(), true
	}
	feed := offsets.New(0)
	o.Sent, s.counting = feed.Confirmed, feed
	p := spool.New(o)
	s.sources = []<-chan *replication.Batch{p.Batches()}
	if !tableFirst {
		s.sources = append(s.sources, p.Rest(), s.stream.Batches())
	}
	running, cancel := context.WithCancel(working)
	s.endSpool = func() {
		cancel()
		p.Wait()
		for _, call := range spool.Calls {
			s.r.health.Recorded(call)
		}
	}
	s.spool.Store(p)
	p.Run(running)
	s.r.log.Warn().Int64("spooled_events", state.Events).Bool("stores", !tableFirst).
		Msg("what the stream brings goes through cdc_relay_spool until all of that is sent")
	return nil
}

// spoolCalled takes in how a call of the spool went, and reports whether that is to be logged.
func (s *session) spoolCalled(what string, err error) (news bool) {
	if err == nil {
		s.r.health.Recorded(what)
		return false
	}
	s.heed(err)
	return s.r.health.CannotRecord(what, err)
}

// emptySpool sends what is spooled before the table is read: its events are older, and the list of rows without an
// outcome would have them, too.
func (s *session) emptySpool(ctx context.Context) error {
	p := s.spool.Load()
	if p == nil {
		return nil
	}
	if err := s.dispatch(ctx, nil); err != nil {
		return err
	}
	if err := s.drained(ctx); err != nil {
		return err
	}
	s.endSpool()
	if p.Sweep(ctx); !p.Empty() {
		return errors.New("the spool is not empty though all of it was sent; trying again")
	}
	s.leaveSpool()
	s.sources = []<-chan *replication.Batch{s.stream.Batches()}
	return nil
}

// nextSource goes on with the stream after what was spooled. Without more, the session ends with the error; nil: the
// stream has ended.
func (s *session) nextSource(ctx context.Context) (more bool, err error) {
	if p := s.spool.Load(); p != nil && p.Err() != nil {
		s.settleBefore(ctx)
		return false, s.explainDecode(p.Err())
	}
	if len(s.sources) == 1 {
		return false, nil
	}
	s.sources = s.sources[1:]
	s.leaveSpool()
	return true, nil
}

// leaveSpool counts events in the stream's ledger from now on.
func (s *session) leaveSpool() {
	if s.counting == s.ledger {
		return
	}
	s.counting = s.ledger
	s.term.spools.Store(false)
	s.r.log.Info().Msg("everything spooled is handed to the sink; the stream goes there again")
}

// spools reports whether something is spooled, or not known.
func (s *session) spools() bool {
	p := s.spool.Load()
	return s.spooled.Load() && (p == nil || !p.Empty())
}

// taking reports whether the stream is being stored.
func (s *session) taking() bool {
	p := s.spool.Load()
	return p != nil && p.Taking()
}

// spoolDegrades says that something is spooled.
func (s *session) spoolDegrades() []Degradation {
	p := s.spool.Load()
	if p == nil || p.Empty() {
		return nil
	}
	text := fmt.Sprintf("%d events are stored in cdc_relay_spool", p.Events())
	if at, some := p.Oldest(); some {
		text += fmt.Sprintf(", the oldest from %s or later", at.UTC().Format(time.RFC3339))
	}
	return []Degradation{{degradedSpool, text + "; they are sent in order, before what the stream brings. Until then no " +
		"reconcile round runs and nothing is pruned"}}
}

// spoolBroken is the halt for a spool that cannot be read.
func spoolBroken(err error) error {
	if e, ok := errors.AsType[*decoder.SourceError](err); ok {
		return e // a new session may cure it
	}
	return &halt.Error{Code: halt.MalformedWAL, Cause: err, Reason: err.Error(),
		Risk: "the events in that row and behind it are confirmed to Postgres and not sent; while the relay is halted, " +
			"Postgres keeps WAL",
		Remedy: "restore the table cdc_relay_spool. If that cannot be done, delete its rows for this source: the next " +
			"start then publishes, marked as late, those of their events whose rows are still in the outbox"}
}

// overBudget says that Postgres keeps more WAL than wal.budget for a relay that reads nothing, as in most halts; "": it
// does not, or that is not known.
func (r *Relay) overBudget() string {
	kept, known := r.meter.LagBytes()
	if budget := r.c.WAL.Budget; !known || budget == 0 || kept <= float64(budget) || r.session() != nil {
		return ""
	}
	return fmt.Sprintf("Postgres keeps %.0f MiB of WAL since the confirmed position, more than wal.budget: a halted "+
		"relay reads and spools nothing, so this grows until the cause is repaired", kept/(1<<20))
}

// flows reports whether what is handed to the sink now is sent soon. The dispatcher does not wait for more while it is
// paused, for a broker, a registry or room in the window.
func (s *session) flows() bool {
	if !s.takes.Load() {
		return false
	}
	received, some := s.term.inflight.Oldest(nil)
	return !some || settle.SinceStart(time.Now())-received < s.term.spoolPatience()/2 &&
		s.r.meter.Outcomes.Settled() > s.settledBefore
}

// spoolPatience is for how long an event waits for its outcome, or the stream for being read, before it is stored.
func (t *term) spoolPatience() time.Duration { return time.Duration(t.r.c.Postgres.WALSenderTimeout) }

// considerSpool ends the session when Postgres is about to keep more WAL than wal.budget because of this relay: an
// event that it brought waits for its outcome, or it is not read. The position that counts is the confirmed one: a long
// transaction holds back restart_lsn, whatever is confirmed.
func (t *term) considerSpool(s *session, slot store.SlotStatus) {
	budget := uint64(t.r.c.WAL.Budget)
	if budget == 0 || s != t.owner() || s.tableFirst.Load() || s.taking() || t.stopping.Load() {
		return
	}
	confirmed := s.ledger.Confirmed()
	if slot.WALEnd <= confirmed || !s.stands(t.spoolPatience()) {
		return
	}
	if uint64(slot.WALEnd-confirmed) <= spoolsAbove(budget, confirmed, slot.Restart) {
		return
	}
	t.spools.Store(true)
	s.fail(fmt.Errorf("%w: %d MiB since the confirmed position %v, of %d MiB", restart.ErrSpools,
		uint64(slot.WALEnd-confirmed)>>20, confirmed, budget>>20))
}

// spoolsAbove is how many bytes of WAL may be kept without being stored. The session that stores them confirms nothing
// until the server has decoded again what lies between restart_lsn and the confirmed position, 15 to 30 s of WAL. In
// that time half as much is written by others at most, if the server decodes twice as fast as they write.
func spoolsAbove(budget uint64, confirmed, restart outbox.LSN) uint64 {
	again := uint64(confirmed - min(restart, confirmed))
	return budget - min(again, budget)/2
}

// stands reports whether for so long an event of the stream has waited for its outcome, or the stream for being read.
func (s *session) stands(patience time.Duration) bool {
	now := settle.SinceStart(time.Now())
	if received, some := s.term.inflight.Oldest(s.ledger); some && now-received > patience {
		return true
	}
	return !s.takes.Load() && now-time.Duration(s.tookAt.Load()) > patience
}
