package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// wholeBytes and wholeWait bound the wait for the end of a transaction, which the server sends message by message.
const wholeBytes, wholeWait = 16 << 10, time.Millisecond

// receive reads what is there and cuts it into messages; Run hands the last batch over. A timeout is not an error.
func (s *Session) receive(ctx context.Context, conn net.Conn, confirmed func() outbox.LSN) error {
	wait := s.c.StatusInterval
	if s.sent < s.received {
		wait = min(wait, progressInterval) // something is on its way to being confirmed, or is to be told
	}
	began := time.Now()
	if err := until(ctx, conn, began.Add(wait)); err != nil {
		return err
	}
	for awaits := false; ; {
		if err := s.frames.fill(); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return ctx.Err()
			}
			return fmt.Errorf("read from server: %w", err)
		}
		s.lastReceived = time.Now()
		if err := s.cut(ctx, confirmed); err != nil || s.lastReceived.Sub(began) > progressInterval {
			return err
		}
		switch {
		case s.link.net.more():
		case !s.halfRead():
			return nil
		case !awaits:
			awaits = true
			if err := until(ctx, conn, s.pending.Received.Add(wholeWait)); err != nil {
				return err
			}
		}
	}
}

// halfRead reports whether the batch ends inside a small transaction, whose rest is on its way: each part would cost
// the receiver, and the broker, as much as the whole. With a read interval the rest comes with the next look.
func (s *Session) halfRead() bool {
	return s.inside && s.pending != nil && s.pending.bytes < wholeBytes && s.c.ReadInterval == 0 &&
		s.lastReceived.Sub(s.pending.Received) < wholeWait
}

// until sets the deadline of reads.
func until(ctx context.Context, conn net.Conn, deadline time.Time) error {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return fmt.Errorf("read from server: %w", err)
	}
	return ctx.Err() // the watcher's deadline may have been overwritten just now
}

// cut takes every message that was read whole.
func (s *Session) cut(ctx context.Context, confirmed func() outbox.LSN) error {
	for {
		kind, body, ok, err := s.frames.next()
		if err != nil || !ok {
			s.position.Store(uint64(s.received))
			return err
		}
		if err := s.take(kind, body); err != nil {
			return err
		}
		if s.pending != nil && s.pending.bytes >= batchBytes {
			if err := s.handOver(ctx, confirmed); err != nil {
				return err
			}
		}
	}
}
