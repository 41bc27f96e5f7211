package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const (
	// progressInterval delays a status after the confirmed position has moved; a status per transaction
	// would keep both sides busy for nothing.
	progressInterval = 100 * time.Millisecond
	// replyInterval bounds the answers to keepalives that ask for one. A server that shuts down asks without pause.
	replyInterval = time.Second
	// closeTimeout bounds the polite end of a session.
	closeTimeout = 2 * time.Second
	// batchBytes is the size at which a batch is handed over though more is readable.
	batchBytes = chunkSize
)

// ErrServerEnded reports that the server ended the stream because it shuts down.
var ErrServerEnded = errors.New("the server ended the stream (it is shutting down)")

// SilentError reports that the server has sent nothing for longer than wal_sender_timeout, although it was asked to
// reply.
type SilentError struct{ For time.Duration }

func (e *SilentError) Error() string {
	return fmt.Sprintf("no message from the server for %v: assuming a dead connection", e.For.Round(time.Millisecond))
}

// Message is one message of the stream: WAL data or a keepalive.
type Message struct {
	Data []byte // one pgoutput message; nil in a keepalive. Valid until its batch is given back by Recycle
	// Keepalive: everything committed before it was sent before it. Else where the change stands in the WAL, 0 where the
	// server does not tell.
	WALEnd    outbox.LSN
	Keepalive bool
}

// Batch holds the messages of one read: at least one.
type Batch struct {
	Messages []Message
	Received time.Time
	bytes    int
	chunks   []*chunk // in which the messages lie
}

var batches = sync.Pool{New: func() any { return new(Batch) }}

// Recycle returns the batch and the memory of its messages. With keep the data of the messages stays valid as long as
// any part of it is referenced.
func (b *Batch) Recycle(keep bool) {
	if !keep {
		for _, c := range b.chunks {
			c.release()
		}
	}
	clear(b.chunks)
	clear(b.Messages)
	b.Messages, b.bytes, b.chunks = b.Messages[:0], 0, b.chunks[:0]
	batches.Put(b)
}

// use notes that messages of the batch lie in the chunk.
func (b *Batch) use(c *chunk) {
	if n := len(b.chunks); n == 0 || b.chunks[n-1] != c {
		c.users.Add(1)
		b.chunks = append(b.chunks, c)
	}
}

// Grant describes the stream that the server granted to a session.
type Grant struct {
	System    System     // who the server is
	Confirmed outbox.LSN // the slot's confirmed_flush_lsn just before the stream began
	PID       int64      // our backend on the server: the slot's active_pid while the lease is ours
}

// Session is one replication connection with a started stream, created by [Open] and ended by Run.
//
// Invariants, asserted in Run:
//  1. What is confirmed to the server never goes back and is never zero.
//  2. It never exceeds what this session received, or what the slot had confirmed when it began.
type Session struct {
	Grant

	c        Config
	link     *link
	batches  chan *Batch
	position atomic.Uint64 // received, for Received

	// All below is owned by the goroutine in Run.
	unwatch      func() // ends what ends a blocked read with the context
	frames       frameReader
	pending      *Batch     // read, not yet handed over; nil when none
	inside       bool       // the last message of the stream belongs to a transaction whose end was not read
	received     outbox.LSN // highest position that the server sent
	sent         outbox.LSN // confirmed position of the last status
	lastStatus   time.Time
	lastReply    time.Time // last status that answered a keepalive's request
	replyWanted  bool
	lastReceived time.Time
	lastPing     time.Time
}

// Open connects, reads the slot and starts the stream at the slot's own position. The stream is granted to one
// connection at a time, which makes it the lease on the slot; see SlotBusyError. Nothing is read before Run.
func Open(ctx context.Context, c Config) (*Session, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Session{c: c, link: l, batches: make(chan *Batch)}
	s.PID = int64(l.conn.PID())
	if s.System, err = l.identify(ctx); err == nil {
		s.Confirmed, err = l.slot(ctx, c.Slot)
	}
	if err == nil {
		err = l.start(ctx, c)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	s.received, s.sent = s.Confirmed, s.Confirmed
	s.position.Store(uint64(s.received))
	s.frames.src, s.frames.most = l.raw, c.MaxRow
	l.net.stream(l.conn.Conn(), c.Behind, c.ReadInterval)
	return s, nil
}

// Granted returns the Grant of this session.
func (s *Session) Granted() Grant { return s.Grant }

// Batches returns the channel of batches, in order. While there is no receiver, Run stops reading and goes on to
// send status, so that neither side's time-out trips. It is closed when Run returns.
func (s *Session) Batches() <-chan *Batch { return s.batches }

// Received returns the highest position that the server sent. Any goroutine may call it.
func (s *Session) Received() outbox.LSN { return outbox.LSN(s.position.Load()) }

// Close ends a session whose Run was never called.
func (s *Session) Close() { s.link.close() }

// Run reads the stream until the context ends or the connection fails. When the context ends it sends a last status,
// ends the stream in order and returns the context's error. It calls confirmed from its goroutine at any time; the
// result must never go back.
func (s *Session) Run(ctx context.Context, confirmed func() outbox.LSN) error {
	defer close(s.batches)
	defer s.link.close()
	conn := s.link.conn.Conn()
	s.unwatch = endReads(ctx, conn) // one watcher for the whole session
	now := time.Now()
	s.lastReceived, s.lastStatus = now, now
	for {
		if err := s.handOver(ctx, confirmed); err != nil {
			return s.leave(ctx, err, confirmed)
		}
		if err := s.receive(ctx, conn, confirmed); err != nil {
			return s.leave(ctx, err, confirmed)
		}
		if err := s.tick(confirmed); err != nil {
			return s.leave(ctx, err, confirmed)
		}
	}
}

// handOver gives the pending batch to the receiver, sending status while it waits.
func (s *Session) handOver(ctx context.Context, confirmed func() outbox.LSN) error {
	if s.pending == nil {
		return ctx.Err()
	}
	select { // the usual case needs no timer
	case s.batches <- s.pending:
		s.pending = nil
		return nil
	default:
	}
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case s.batches <- s.pending:
			s.pending = nil
			s.lastReceived = time.Now() // nothing was read in that time: the silence is ours
			return nil
		case <-ticker.C:
			if err := s.status(time.Now(), confirmed); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take sorts one protocol message.
func (s *Session) take(kind byte, body []byte) error {
	switch kind {
	case 'd':
		return s.takeCopyData(body)
	case 'N':
		return s.takeNotice(body)
	case 'S': // ParameterStatus: a reload of the server's configuration
		return nil
	case 'E':
		var e pgproto3.ErrorResponse
		if err := e.Decode(body); err != nil {
			return fmt.Errorf("read error message: %w", err)
		}
		if e.Code == "42704" && (e.Routine == missingPublication || strings.Contains(e.Message, "publication")) {
			return &PublicationMissingError{Publication: s.c.Publication, Said: e.Message}
		}
		if e.Code == "22P05" || e.Code == "22021" {
			return &EncodingError{Encoding: s.link.conn.ParameterStatus("server_encoding"), Said: e.Message, Where: e.Where}
		}
		return fmt.Errorf("stream: %w", pgconn.ErrorResponseToPgError(&e))
	case 'c', 'C', 'Z':
		return ErrServerEnded
	}
	return fmt.Errorf("stream: unexpected protocol message %q", kind)
}

// takeCopyData appends WAL data ('w': start, end, time, 8 bytes each, then data) or a keepalive ('k': end, time, one
// byte that asks for a reply) to the pending batch. Layouts: PostgreSQL docs, "Streaming Replication Protocol".
func (s *Session) takeCopyData(body []byte) error {
	const keepaliveSize = 1 + 8 + 8 + 1
	if s.pending == nil {
		s.pending = batches.Get().(*Batch)
		s.pending.Received = s.lastReceived
	}
	switch {
	case len(body) > walHeader && body[0] == 'w':
		// The header's end is the position of the change, 0/0 for some kinds, the end of the transaction for a commit.
		at := outbox.LSN(binary.BigEndian.Uint64(body[9:]))
		s.received = max(s.received, at)
		s.inside = body[walHeader] != 'C' && (s.inside || body[walHeader] == 'B') // Begin to Commit
		s.pending.Messages = append(s.pending.Messages, Message{Data: body[walHeader:], WALEnd: at})
		s.pending.use(s.frames.chunk)
	case len(body) == keepaliveSize && body[0] == 'k':
		end := outbox.LSN(binary.BigEndian.Uint64(body[1:]))
		s.received = max(s.received, end)
		s.replyWanted = s.replyWanted || body[17] == 1
		if n := len(s.pending.Messages); n > 0 && s.pending.Messages[n-1].Keepalive {
			s.pending.Messages[n-1].WALEnd = end
		} else {
			s.pending.Messages = append(s.pending.Messages, Message{WALEnd: end, Keepalive: true})
		}
	default:
		return fmt.Errorf("stream: malformed copy data of %d bytes: %x", len(body), body[:min(len(body), 64)])
	}
	s.pending.bytes += len(body)
	return nil
}

// tick does what is due by the clock: status, liveness.
func (s *Session) tick(confirmed func() outbox.LSN) error {
	now := time.Now()
	if silent := now.Sub(s.lastReceived); silent > s.c.WALSenderTimeout {
		return &SilentError{For: silent}
	}
	return s.status(now, confirmed)
}

// status sends a standby status if one is due: by the timer, for progress, for a keepalive that asked, or as a
// question of our own after half of the time-out in silence (our statuses keep the server from ever asking).
func (s *Session) status(now time.Time, confirmed func() outbox.LSN) error {
	position := confirmed()
	since := now.Sub(s.lastStatus)
	ping := now.Sub(s.lastReceived) > s.c.WALSenderTimeout/2 && now.Sub(s.lastPing) > s.c.WALSenderTimeout/8
	reply := s.replyWanted && now.Sub(s.lastReply) >= replyInterval
	progress := position > s.sent && since >= progressInterval
	if !ping && !reply && !progress && since < s.c.StatusInterval {
		return nil
	}
	if err := s.send(position, ping); err != nil {
		return err
	}
	s.lastStatus = now
	if s.replyWanted {
		s.replyWanted, s.lastReply = false, now
	}
	if ping {
		s.lastPing = now
	}
	return nil
}

// send writes one standby status with write = flush = apply. A zero position is not sent at all: the library would
// turn a zero flush position into the write position, and the server has nothing to learn from it.
func (s *Session) send(position outbox.LSN, ping bool) error {
	if position == 0 {
		return nil
	}
	if position < s.sent || position > s.received {
		return fmt.Errorf("assert: confirmed position %v must be between the last one sent, %v, and the highest received, %v",
			position, s.sent, s.received)
	}
	if err := s.link.conn.Conn().SetWriteDeadline(time.Now().Add(s.c.WALSenderTimeout)); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	lsn := pglogrepl.LSN(position)
	err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.link.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: lsn, WALFlushPosition: lsn, WALApplyPosition: lsn, ReplyRequested: ping,
	})
	if err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	s.sent = position
	return nil
}

// leave ends the session. When the context ended the stream it sends the last status and CopyDone and waits, bounded,
// for the server to agree, so that the position is confirmed and the slot is free when Run returns.
func (s *Session) leave(ctx context.Context, cause error, confirmed func() outbox.LSN) error {
	s.unwatch() // it may come late, and would end the wait below
	if ctx.Err() == nil {
		return cause
	}
	conn := s.link.conn.Conn()
	_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
	if err := s.send(confirmed(), false); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	front := s.link.conn.Frontend()
	front.Send(&pgproto3.CopyDone{})
	if front.Flush() != nil {
		return ctx.Err()
	}
	for {
		kind, _, ok, err := s.frames.next()
		if err != nil || (ok && (kind == 'Z' || kind == 'E')) {
			return ctx.Err()
		}
		if !ok && s.frames.fill() != nil {
			return ctx.Err()
		}
	}
}
