package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/upkeep/reconcile"
	"github.com/cdc-relay/cdc-relay/internal/watch/meter"
	"github.com/cdc-relay/cdc-relay/replication"
)

// This file is the hot path: from bytes of the stream to the sink. The goroutine of the session runs it, and all that
// it touches is the session's, the ledger, the registry of what is in flight, and the sink.

// step is one decoded message that matters: dispatch decodes a whole batch before it applies it, so that ids can be
// looked up together.
type step struct {
	kind     stepKind
	lsn      outbox.LSN       // begin: commit LSN; commit: end LSN; keepalive: WAL end
	time     int64            // begin: commit time, microseconds since the Unix epoch
	delivery *settle.Delivery // insert
	mark     *reconcile.Mark  // mark; its lsn is the commit LSN
	source   int32            // relation: of its events
	payload  uint32           // relation: the OID of the payload column's type

	recognized store.Recognition // insert: what the tables say of it, while look-ups are on
}

type stepKind uint8

const (
	stepBegin stepKind = iota
	stepInsert
	stepCommit
	stepKeepalive
	stepToken
	stepMark
	stepRelation
)

// dispatch reads the stream until it ends (nil: the stream's own error tells why) or stop says so, then up to the end
// of the transaction it is in.
func (s *session) dispatch(ctx context.Context, stop <-chan struct{}) error {
	var steps []step
	var out []*settle.Delivery
	pulse := &s.r.meter.Pulses.Dispatching
	defer pulse.Waits()
	for {
		pulse.Waits()
		asked, batches, lates := stop, s.sources[0], s.late
		paused, changed := s.r.pausing.State()
		closed := s.term.settler.BreakerClosed()
		switch {
		case paused != nil || closed != nil: // nor while the breaker is open
			batches, lates = nil, nil // a stop does not wait for the end of the pause, nor so for the commit
		case s.inTx:
			asked = nil // a stop waits for the commit: a half-sent transaction could not be confirmed
		}
		var batch *replication.Batch
		var ok bool
		s.takes.Store(batches != nil)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-asked:
			return nil
		case <-closed:
			continue
		case <-changed:
			continue
		case late := <-lates:
			if stopped, err := s.sendLate(ctx, stop, late); stopped || err != nil {
				return err
			}
			continue
		case batch, ok = <-batches:
		}
		s.takes.Store(false)
		s.tookAt.Store(int64(settle.SinceStart(time.Now())))
		if !ok {
			if more, err := s.nextSource(ctx); !more {
				return err
			}
			continue
		}
		// What came before a message that cannot be decoded is relayed all the same: else the same batch would be refused
		// as a whole at each probe, and nothing of it would ever be confirmed.
		var refused error
		pulse.Works()
		steps, refused = s.decode(batch, steps[:0])
		pulse.Waits() // for Postgres, or a schema registry
		stopped, err := s.ready(ctx, stop, steps)
		if stopped || err != nil {
			return err
		}
		pulse.Works()
		s.large = false
		out = s.apply(steps, stop, out[:0])
		batch.Recycle(s.large)
		pulse.Waits() // for room in the window; see submitting
		if err := s.sent(ctx, out, refused); err != nil {
			return err
		}
		clear(steps)
		clear(out)
	}
}

// sent sends what a batch has brought before the message that was refused, nil for none.
func (s *session) sent(ctx context.Context, out []*settle.Delivery, refused error) error {
	if err := s.send(ctx, out); err != nil {
		return err
	}
	if s.passing {
		s.passing = false
		s.redelivered()
	}
	if refused = cmp.Or(s.retyped, refused); refused != nil {
		s.settleBefore(ctx)
		return refused
	}
	return nil
}

// refusedPatience bounds the wait of a halt for the events sent before it.
const refusedPatience = 5 * time.Second

// settleBefore waits for the outcome of what came before a message that ends the session, so that it is confirmed by
// then. What is not comes again under the table's shape of that time, and after a column was renamed no
// configuration fits the rows before and after it.
func (s *session) settleBefore(ctx context.Context) {
	select {
	case <-s.term.inflight.Drained():
	case <-time.After(refusedPatience):
	case <-ctx.Done():
	}
}

// decode turns a batch into steps, up to the first message that cannot be decoded. Events are decoded into deliveries
// in place.
func (s *session) decode(batch *replication.Batch, steps []step) ([]step, error) {
	received := settle.SinceStart(batch.Received)
	for i := range batch.Messages {
		m := &batch.Messages[i]
		if m.Keepalive {
			steps = append(steps, step{kind: stepKeepalive, lsn: m.WALEnd})
			continue
		}
		d := s.next()
		message, err := s.decoder.Decode(m.Data, &d.Event)
		if err != nil {
			return steps, s.explainDecode(err)
		}
		switch message.Kind {
		case decoder.Begin:
			s.commitLSN, s.committed, s.rows, s.began = message.LSN, message.Time, 0, m.WALEnd
			steps = append(steps, step{kind: stepBegin, lsn: message.LSN, time: message.Time})
		case decoder.Commit:
			if s.began != 0 && s.rows > 0 && message.LSN > s.began {
				s.wal, s.walEvents = s.wal+uint64(message.LSN-s.began), s.walEvents+uint64(s.rows)
			}
			steps = append(steps, step{kind: stepCommit, lsn: message.End})
		case decoder.Insert:
			d.Received, d.Committed = received, s.committed
			d.Event.Position.Epoch = s.of(&d.Event).state.Era
			s.rows++
			s.use()
			steps = append(steps, step{kind: stepInsert, delivery: d})
		case decoder.RelationMessage:
			oid := message.Relation.TypeOf(s.r.c.Outbox.Columns.Payload)
			steps = append(steps, step{kind: stepRelation, source: message.Source, payload: oid})
		case decoder.LogicalMessage:
			if string(message.Prefix) != tokenPrefix {
				continue
			}
			if string(message.Content) == store.AskedToken(s.r.c.Postgres.Slot) {
				s.term.requests.Asked()
			}
			if s.lookup && string(message.Content) == s.token {
				steps = append(steps, step{kind: stepToken})
			}
			if m := s.mark.Load(); m != nil && m.Is(message.Content) {
				steps = append(steps, step{kind: stepMark, lsn: s.commitLSN, mark: m})
			}
		}
	}
	return steps, nil
}

// next is a free delivery; it stays free until use.
func (s *session) next() *settle.Delivery {
	if len(s.spare) == 0 {
		s.spare = s.term.inflight.Take(s.spare)
	}
	return s.spare[len(s.spare)-1]
}

// use takes what next gave.
func (s *session) use() {
	last := len(s.spare) - 1
	s.spare[last] = nil
	s.spare = s.spare[:last]
}

// ready returns when all that the steps need is there: what of them is recorded, and the schemas of the rest.
// Stopped: a stop came while they were waited for.
func (s *session) ready(ctx context.Context, stop <-chan struct{}, steps []step) (stopped bool, err error) {
	if err = s.recognize(ctx, steps); err != nil {
		return false, err
	}
	if s.r.registry != nil {
		for _, st := range steps {
			if st.kind == stepInsert && !stopped && err == nil {
				stopped, err = s.awaitSchema(ctx, stop, &st.delivery.Event)
			}
		}
	}
	if s.lookup && !stopped && err == nil {
		err = s.recognizeGone(ctx, steps)
	}
	return stopped, err
}

// apply moves the ledger and collects what must be sent, in order. When a stop was asked for it goes no further than
// the end of the current transaction; what follows was not taken and comes again.
func (s *session) apply(steps []step, stop <-chan struct{}, out []*settle.Delivery) []*settle.Delivery {
	s.now = time.Now()
	received, transactions := 0, 0
	defer func() { s.count(received, transactions) }()
	for _, st := range steps {
		if !s.inTx && stopped(stop) {
			return out
		}
		switch st.kind {
		case stepBegin:
			s.counting.Begin(st.time)
			s.r.meter.Stream.Began(s.now.Add(time.Duration(s.ahead.Load())).UnixMicro() - st.time)
			s.inTx = true
		case stepCommit:
			s.counting.Commit(st.lsn)
			s.inTx, s.reached = false, st.lsn
			transactions++
			if s.marked != nil {
				s.marked.Ended(st.lsn) // after the ledger has it
				s.marked = nil
			}
		case stepKeepalive:
			s.counting.Keepalive(st.lsn)
			s.reached = max(s.reached, st.lsn)
		case stepMark:
			st.mark.Delivered(st.lsn)
			s.marked = st.mark
		case stepRelation:
			if s.retyped = s.retype(s.numbered(st.source), st.payload); s.retyped != nil {
				return out
			}
		case stepToken:
			s.lookup, s.known, s.passing = false, settle.Known{}, true
			s.term.sent = nil
			s.lookingUp.Store(false)
			s.r.log.Info().Str("token", s.token).Int("reused_ids", s.reusedIDs).Msg("redelivery is over; look-ups end")
		case stepInsert:
			received++
			if s.lookup && s.comesAgain(&st) {
				continue
			}
			d := st.delivery
			x := s.of(&d.Event)
			x.payload.Used = true
			s.r.meter.Stream.Interleaved.Note(&d.Event)
			d.Txn, d.Ledger = s.counting.Add(), s.counting
			x.encode(d, s.now)
			s.large = !keep(x.router, d) || s.large
			if st.recognized > store.Recorded {
				s.reused(d, st.recognized)
			}
			out = append(out, d)
		}
	}
	return out
}

// count counts what came from the stream, for a whole batch at a time.
func (s *session) count(received, transactions int) {
	s.taken.Store(uint64(s.reached))
	if s.walEvents >= meter.EnoughEvents {
		s.r.meter.Database.NoteWAL(s.wal, s.walEvents)
		s.wal, s.walEvents = 0, 0
	}
	s.r.meter.Stream.Took(s.now, received, transactions)
	s.events.Add(uint64(received))
}

// send admits what apply collected and hands it to the sink, blocking while the window is full. Events that cannot be
// messages go straight to the settler as dead letters.
func (s *session) send(ctx context.Context, out []*settle.Delivery) error {
	if len(out) == 0 {
		return nil
	}
	if err := s.announceTopics(ctx); err != nil {
		return err
	}
	s.term.inflight.Admit(out)
	good, rest := s.term.settler.TakeDoomed(ctx, out)
	if rest != nil {
		s.term.inflight.Forget(rest)
		s.term.inflight.Forget(good)
		return context.Cause(ctx)
	}
	s.term.settler.Wait(ctx)
	records := s.records[:0]
	for _, d := range good {
		records = append(records, &d.Record)
	}
	s.r.meter.Pulses.Submitting.Works()
	taken, err := s.term.engine.Submit(ctx, records)
	s.r.meter.Pulses.Submitting.Waits()
	s.records = records
	if err == nil {
		return nil
	}
	s.term.inflight.Forget(good[taken:])
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("submit to the sink: %w", err)
}

// announceTopics commits the names of topics that are used for the first time, before a record goes there: a start
// after a crash looks into the topics that it knows of.
func (s *session) announceTopics(ctx context.Context) error {
	return s.announce(ctx, s.term.names.Fresh())
}

// Announce does it for topics of parked events: a replay may name one that no event was sent to yet.
func (s *session) Announce(ctx context.Context, topics []string) error {
	return s.announce(ctx, s.term.names.Unannounced(topics))
}

func (s *session) announce(ctx context.Context, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	if err := s.r.store.AddTopics(ctx, topics); err != nil {
		return err
	}
	s.term.names.Announced(topics...)
	select {
	case s.term.announced <- topics:
	default: // the next start notes their cluster
	}
	return nil
}

// explainDecode turns what the decoder refuses into a halt: nothing is skipped, nothing is guessed.
func (s *session) explainDecode(err error) error {
	if _, ok := errors.AsType[*decoder.ColumnError](err); ok {
		return err
	}
	if e, ok := errors.AsType[*decoder.SourceError](err); ok {
		return e
	}
	h := &halt.Error{Code: halt.MalformedWAL,
		Reason: fmt.Sprintf("a WAL message that was received before %s cannot be used: %v", s.stream.Received(), err),
		Risk:   halt.RiskWAL,
		Remedy: "report it with this message; do not advance the slot past it unless the events of its transaction are " +
			"known to be published",
		Cause: err}
	if _, ok := errors.AsType[*decoder.RowError](err); ok {
		h.Remedy = "give the row an id in the table, or delete it, and make the column NOT NULL; then " +
			"cdc-relay slot advance --to end --yes: the relay publishes from the table what that skips"
	}
	return h
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
