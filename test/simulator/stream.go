package simulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// stream is a replication connection, both ends of it.
type stream struct {
	w       *world
	p       *process
	slot    *slot
	grant   replication.Grant
	batches chan *replication.Batch
	cut     chan struct{} // closed when the connection is gone

	// Owned by Run.
	d     *dice
	sent  outbox.LSN // of the last status
	asked time.Time  // of the last status

	// Guarded by world.mu.
	why       error        // of cut
	next      int          // in the WAL's items
	part      int          // of the item's messages
	messages  [][]byte     // of the item that is being sent
	ends      []outbox.LSN // of these
	announced map[*table]bool
	received  outbox.LSN         // by the relay
	onItsWay  outbox.LSN         // a status that has not reached the server
	decoded   outbox.LSN         // WAL that the server has read
	said      error              // of die
	died      time.Time          // see die
	upTo      int                // items of the WAL that it had sent when it died
	waiting   *replication.Batch // read, not handed over yet
}

// OpenStream takes the slot.
func (b backend) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	var st *stream
	err := b.command(ctx, "start replication", func(s *server) error {
		slot := s.slots[c.Slot]
		switch {
		case slot == nil:
			return &replication.SlotMissingError{Slot: c.Slot}
		case slot.lost:
			return &replication.SlotLostError{Slot: c.Slot, Why: "its WAL was removed"}
		case slot.holder != nil:
			return &replication.SlotBusyError{Slot: c.Slot, PID: slot.holder.grant.PID}
		case b.p.dead:
			return errDead
		}
		s.lastPID++
		st = &stream{
			w: s.w, p: b.p, slot: slot, announced: map[*table]bool{}, batches: make(chan *replication.Batch),
			cut: make(chan struct{}), sent: slot.confirmed,
			d: s.w.dice(aboutStream, uint64(s.lastPID)), received: slot.confirmed, decoded: slot.confirmed,
			grant: replication.Grant{System: replication.System{ID: systemID, Timeline: 1, WALFlush: s.wal.end},
				Confirmed: slot.confirmed, PID: s.lastPID},
		}
		for st.next < len(s.wal.items) && s.wal.items[st.next].from() < slot.confirmed {
			st.next++
		}
		slot.holder = st
		b.p.leftAlone = time.Time{}
		s.w.note("p%d streams from %v as backend %d", b.p.number, slot.confirmed, s.lastPID)
		st.drawEnd()
		return nil
	})
	if err != nil {
		if st != nil { // the answer was lost
			b.p.w.mu.Lock()
			st.hangUp(io.ErrUnexpectedEOF)
			b.p.w.mu.Unlock()
		}
		return nil, err
	}
	return st, nil
}

func (s *stream) Granted() replication.Grant         { return s.grant }
func (s *stream) Batches() <-chan *replication.Batch { return s.batches }

func (s *stream) Received() outbox.LSN {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.received
}

func (s *stream) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.hangUp(io.ErrClosedPipe)
}

// hangUp ends the connection on the server's side. Called with mu held.
func (s *stream) hangUp(why error) {
	if s.why != nil {
		return
	}
	s.why = why
	close(s.cut)
	if s.slot.holder == s {
		s.slot.holder = nil
	}
	if !s.d.chance(0.5) { // else the last status is lost with the connection
		s.arrive()
	}
	s.w.server.tell()
}

// Run sends what the slot has and takes statuses, as replication.Session does on both ends of a real connection.
func (s *stream) Run(ctx context.Context, confirmed func() outbox.LSN) error {
	defer close(s.batches)
	defer s.Close()
	s.asked = time.Now()
	for {
		if err := s.p.pass(ctx, "stream"); err != nil {
			return err
		}
		if err := s.status(confirmed, false); err != nil {
			return err
		}
		batch, changed, err := s.read()
		if err != nil {
			return err
		}
		var out chan<- *replication.Batch
		if batch != nil {
			out = s.batches
		}
		timer := time.NewTimer(s.patience(confirmed))
		select {
		case out <- batch:
			s.waiting = nil
		case <-changed:
		case <-timer.C:
		case <-s.cut:
			timer.Stop()
			if err := s.p.pass(ctx, "cut"); err != nil {
				return err
			}
			return fmt.Errorf("read from server: %w", s.why)
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), s.status(confirmed, true))
		}
		timer.Stop()
	}
}

// patience is how long Run waits before the next status.
func (s *stream) patience(confirmed func() outbox.LSN) time.Duration {
	wait := time.Duration(s.w.profile.config.Postgres.StatusInterval)
	if confirmed() < s.Received() {
		wait = min(wait, 100*time.Millisecond)
	}
	return wait
}

// status tells the server what is confirmed. One may be on its way for a while, and get lost with the connection.
func (s *stream) status(confirmed func() outbox.LSN, last bool) error {
	at := confirmed()
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.why != nil || s.p.dead {
		return nil
	}
	if s.brokenPipe() {
		return fmt.Errorf("send status: %w", syscall.EPIPE)
	}
	if at < s.sent || at > s.received {
		s.w.violate("p%d confirms %v after %v, having received %v", s.p.number, at, s.sent, s.received)
		return nil
	}
	if at == s.sent && s.onItsWay == 0 {
		return nil
	}
	if !last && time.Since(s.asked) < 100*time.Millisecond {
		return nil
	}
	s.asked = time.Now()
	s.arrive()
	s.sent, s.onItsWay = at, at
	if last || s.w.calm || !s.d.chance(s.w.profile.statusLost) {
		s.arrive()
	} else {
		s.w.fault(statusLost)
	}
	return nil
}

// arrive lets the status that is on its way reach the slot. Called with mu held.
func (s *stream) arrive() {
	if s.onItsWay > s.slot.confirmed && !s.slot.lost && s.said == nil {
		s.w.judgeConfirmed(s.p, s.slot, s.onItsWay)
		s.slot.confirmed = s.onItsWay
		if s.d.chance(0.1) {
			s.slot.saved = s.slot.confirmed
		}
	}
	s.onItsWay = 0
}

// read takes the next batch out of the WAL: some messages, of one transaction or of several, with keepalives in
// between. It returns nil when there is nothing, with a channel that is closed at the next news; and an error behind
// the last message of a stream that has died.
func (s *stream) read() (*replication.Batch, <-chan struct{}, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	changed := s.w.server.changed
	if s.waiting != nil || s.why != nil {
		return s.waiting, nil, nil
	}
	b := &replication.Batch{Received: time.Now()}
	for want := 1 + s.d.below(one(s.d, 1, 4, 30)); len(b.Messages) < want; {
		if !s.readOne(b) {
			break
		}
	}
	if len(b.Messages) == 0 {
		return nil, changed, s.said
	}
	s.waiting = b
	return b, nil, nil
}

// readOne appends one message or keepalive to the batch; false: the WAL has no more.
func (s *stream) readOne(b *replication.Batch) bool {
	wal := &s.w.server.wal
	if s.part < len(s.messages) {
		if s.part > 0 && s.d.chance(0.05) {
			// Harsher than Postgres, whose keepalives inside a transaction say no more than its commit's beginning.
			b.Messages = append(b.Messages, replication.Message{Keepalive: true,
				WALEnd: one(s.d, s.ends[0], s.ends[len(s.ends)-1])})
		}
		b.Messages = append(b.Messages, replication.Message{Data: s.messages[s.part]})
		s.receive(s.ends[s.part])
		s.part++
		return true
	}
	s.messages, s.part = nil, 0
	if s.stuck() {
		return false
	}
	if s.next == len(wal.items) {
		if s.decoded == wal.end || !s.d.chance(0.8) {
			return false
		}
		s.keepalive(b, wal.end)
		return true
	}
	it := wal.items[s.next]
	if at := it.from(); s.d.chance(0.1) && at > s.decoded {
		s.keepalive(b, s.decoded+outbox.LSN(s.d.below(int(at-s.decoded)+1)))
	}
	s.next++
	if it.tx == nil {
		m := appendMessage(nil, 0, it.lsn, "somebody", "else")
		b.Messages = append(b.Messages, replication.Message{Data: m})
		s.receive(it.lsn)
		return true
	}
	rows := it.tx.published()
	if len(rows) == 0 && len(it.tx.tokens)+it.tx.foreign == 0 && !s.w.profile.emptyTransactions {
		return s.next < len(wal.items)
	}
	s.messages, s.ends, _ = it.tx.messages(nil, func(t *table) bool {
		known := s.announced[t]
		s.announced[t] = true
		return !known || s.d.chance(0.1)
	})
	for _, r := range rows {
		if r.streamed {
			s.w.counts.Redelivered++
		}
		r.streamed = true
	}
	s.decoded = it.tx.end
	return true
}

func (s *stream) keepalive(b *replication.Batch, at outbox.LSN) {
	if s.d.chance(0.05) {
		at = s.grant.Confirmed // an old one
	}
	b.Messages = append(b.Messages, replication.Message{Keepalive: true, WALEnd: at})
	s.decoded = max(s.decoded, at)
	s.receive(at)
}

func (s *stream) receive(at outbox.LSN) { s.received = max(s.received, at) }
