package spool

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
)

// intake stores the stream until it is to leave, the stream ends, or the decoder refuses a message: what came before
// that is stored all the same.
func (s *Spool) intake(ctx context.Context) {
	defer close(s.left)
	if s.o.Stream == nil {
		close(s.rest)
		return
	}
	var due <-chan time.Time
	for {
		if len(s.packer.row.data) == 0 {
			due = nil
		} else if due == nil {
			due = time.After(storeEvery)
		}
		select {
		case b, more := <-s.o.Stream:
			if !more {
				return
			}
			if done := s.take(ctx, b); done {
				return
			}
		case <-due:
			if due = nil; !s.store(ctx, s.packer.take()) {
				return
			}
		case <-s.leaves():
			if s.store(ctx, s.packer.take()) {
				s.handOver(nil)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// leaves is closed when the intake is to end, and may: no transaction is open.
func (s *Spool) leaves() <-chan struct{} {
	if s.packer.open {
		return nil
	}
	return s.leave
}

// take packs a batch, and stores the rows that are full. done: the intake is over.
func (s *Spool) take(ctx context.Context, b *replication.Batch) (done bool) {
	for i := range b.Messages {
		select {
		case <-s.leaves():
			if s.store(ctx, s.packer.take()) {
				b.Messages = b.Messages[i:]
				s.handOver(b)
			}
			return true
		default:
		}
		m := &b.Messages[i]
		if m.Keepalive {
			if !s.packer.open {
				s.pass(m.WALEnd)
			}
			continue
		}
		err := s.pack(m.Data)
		if _, ok := errors.AsType[*decoder.SourceError](err); ok {
			s.o.Fail(err) // what is not stored comes again
			return true
		}
		if err != nil {
			s.o.Logger.Error().Err(err).Msg("the stream cannot be read on; what is spooled is sent first")
			s.failed = err
			s.store(ctx, s.packer.take())
			return true
		}
		if !s.store(ctx, s.packer.full()) {
			return true
		}
	}
	b.Recycle(false)
	return false
}

// pack takes a message. It is copied before it is decoded, which changes bytes in place.
func (s *Spool) pack(data []byte) error {
	var e outbox.Event
	was := append([]byte(nil), data...)
	m, err := s.o.Decoder.Decode(data, &e)
	if err != nil {
		return err
	}
	p := &s.packer
	switch m.Kind {
	case decoder.Begin:
		p.begin(m.Time, was, m.LSN < s.skip)
	case decoder.Commit:
		kept := p.ours
		if p.commit(m.End, was); !kept {
			s.pass(m.End)
		}
	case decoder.RelationMessage:
		if p.open {
			p.keep(was, 0)
		}
		p.announce(m.OID, was)
	case decoder.Insert:
		p.keep(was, 1)
	case decoder.LogicalMessage:
		if p.open && string(m.Prefix) == s.o.Prefix {
			p.keep(was, 0)
		}
	}
	return nil
}

// pass notes that the stream has nothing to be stored up to here.
func (s *Spool) pass(at outbox.LSN) {
	if s.beyond = max(s.beyond, at); len(s.packer.row.data) == 0 {
		s.o.Stored(s.beyond)
	}
}

// store stores rows; false: the context ended first.
func (s *Spool) store(ctx context.Context, rows []filling) bool {
	for _, f := range rows {
		r := store.Spooled{Number: s.number + 1, Era: s.o.Era, Ends: f.ends, Committed: time.UnixMicro(f.committed),
			Events: f.events, Data: s.codec.compress(f.data)}
		if !s.insist(ctx, storing, func() error { return s.o.Tables.Spool(ctx, r) }) {
			return false
		}
		s.number = r.Number
		if s.events.Add(int64(f.events)) == int64(f.events) {
			s.oldest.Store(f.committed)
		}
		s.unread.Add(int64(f.events))
		if f.ends == 0 {
			continue
		}
		s.whole.Store(r.Number)
		s.o.Stored(f.ends)
		if len(s.packer.row.data) == 0 && !s.packer.open && s.beyond > f.ends {
			s.o.Stored(s.beyond)
		}
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
	return true
}

// handOver leaves the rest of a batch, nil for none, to who reads the stream from now on, behind what the stream has
// announced.
func (s *Spool) handOver(b *replication.Batch) {
	var announced []replication.Message
	for _, m := range s.packer.relations {
		announced = append(announced, replication.Message{Data: m})
	}
	if len(announced) > 0 {
		s.rest <- &replication.Batch{Messages: announced, Received: time.Now()}
	}
	if b != nil {
		s.rest <- b
	}
	close(s.rest)
}
