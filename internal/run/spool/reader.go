package spool

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// batchBytes is about how much is handed out at once.
const batchBytes = 64 << 10

// read hands out what is stored, in order, until there is no more and the intake has ended. Only then it closes
// Batches: if the context ends first, who takes them sees that.
func (s *Spool) read(ctx context.Context) {
	after := max(s.o.State.First, 1) - 1
	for {
		over := !s.taking()
		if after == s.whole.Load() {
			if over {
				s.given.Store(true)
				close(s.batches)
				return
			}
			if !s.awaitMore(ctx) {
				return
			}
			continue
		}
		var r store.Spooled
		var found bool
		if !s.insist(ctx, reading, func() (err error) {
			r, found, err = s.o.Tables.NextSpooled(ctx, after)
			return err
		}) {
			return
		}
		if !found || after > 0 && r.Number != after+1 {
			s.o.Fail(fmt.Errorf("row %d of cdc_relay_spool is not there: someone else has changed the table", after+1))
			return
		}
		if !s.hand(ctx, &r) {
			return
		}
		after = r.Number
	}
}

// taking reports whether more may be stored.
func (s *Spool) taking() bool {
	select {
	case <-s.left:
		return false
	default:
		return true
	}
}

// awaitMore waits for news, and asks the intake to end when what is handed out is sent soon: then what it would store
// can as well be sent by itself.
func (s *Spool) awaitMore(ctx context.Context) bool {
	if s.o.Flows() {
		s.Leave()
	}
	select {
	case <-s.news:
	case <-s.left:
	case <-time.After(leaveLook):
	case <-ctx.Done():
		return false
	}
	return true
}

// hand hands a row out.
func (s *Spool) hand(ctx context.Context, r *store.Spooled) bool {
	messages, err := s.codec.unpack(r.Data)
	if err == nil {
		err = rename(messages, s.o.Outbox, s.o.Root)
	}
	if err != nil {
		s.o.Fail(fmt.Errorf("row %d of cdc_relay_spool cannot be read: %w", r.Number, err))
		return false
	}
	s.mu.Lock()
	s.out = append(s.out, handed{r.Number, r.Ends, r.Committed.UnixMicro(), r.Events})
	s.mu.Unlock()
	for len(messages) > 0 {
		b := &replication.Batch{Received: time.Now()}
		for size := 0; len(messages) > 0 && size < batchBytes; messages = messages[1:] {
			b.Messages = append(b.Messages, replication.Message{Data: messages[0]})
			size += len(messages[0])
		}
		select {
		case s.batches <- b:
		case <-ctx.Done():
			return false
		}
	}
	s.unread.Add(-int64(r.Events))
	return true
}

// sweep deletes rows whose events are all settled, until nothing is spooled any more.
func (s *Spool) sweep(ctx context.Context) {
	for pause(ctx, sweepEvery) {
		if s.Sweep(ctx); s.empty.Load() {
			return
		}
	}
}

// Sweep deletes what is settled now. One goroutine at a time may call it.
func (s *Spool) Sweep(ctx context.Context) {
	given := s.given.Load() // before the look at what is left
	done, events := s.settled(s.o.Sent())
	if len(done) > 0 {
		first, last := done[0].number, done[len(done)-1].number
		if s.call(ctx, deleting, func() error { return s.o.Tables.DeleteSpooled(ctx, first, last) }) != nil {
			return
		}
		s.events.Add(-int64(events))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = s.out[len(done):]
	switch {
	case len(s.out) > 0:
		s.oldest.Store(s.out[0].committed)
	case len(done) > 0:
		s.oldest.Store(done[len(done)-1].committed)
	}
	if given && s.failed == nil && len(s.out) == 0 {
		s.empty.Store(true)
	}
}

// settled are the first rows that were handed out, as far as everything in them is settled, and their events.
func (s *Spool) settled(sent outbox.LSN) (rows []handed, events int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for i, r := range s.out {
		sum += r.events
		if r.ends > sent {
			break
		}
		if r.ends != 0 { // else it is a part of a transaction that has not ended
			rows, events = s.out[:i+1], sum
		}
	}
	return rows, events
}
