package relay

import (
	"context"
	"errors"
	"time"
)

// A session reads nothing of its stream before parked lanes, topics and catch-up are done. When the server cannot decode what
// the slot holds, it ends the stream meanwhile, with the reason behind all that nobody has read. The slot is free then, and what
// this relay notices first is the standby's takeover. The standby fares alike, and the two take the slot from each other in turn,
// neither longer than the server needs to come to that place. So after some such sessions in a row the next one reads first.
const (
	soundAfter = 2        // sessions in a row that ended before their stream was read
	soundMost  = 64 << 20 // bytes of messages: more than sockets hold, so who ended unread did so before
)

// errSounded ends a session that has thrown away what it read.
var errSounded = errors.New("read ahead after sessions that ended before their stream was read, and found nothing wrong; starting again")

// sound reads the stream for the reason that it ends with, to where the WAL ended when the slot was granted, or soundMost. What it
// reads is thrown away: nothing of it is confirmed, and the next session gets it again.
func (s *session) sound(ctx context.Context) error {
	s.heard = true
	s.r.log.Warn().Int("sessions", s.r.last.Unheard).Msg("sessions ended before their stream was read, as when another relay takes the slot; reading ahead for the reason")
	for read := 0; read < soundMost && s.stream.Received() < s.grant.System.WALFlush; {
		select {
		case b, more := <-s.stream.Batches():
			if !more {
				<-ctx.Done() // the stream's end ends the work
				return context.Cause(ctx)
			}
			for _, m := range b.Messages {
				read += len(m.Data)
			}
			b.Recycle(false)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return errSounded
}

// lastWords is how long the reason for a stream's end may take to arrive after its effect was seen.
const lastWords = time.Second

// hearOut reads the rest of a stream that the server has ended, for the reason that stands at its end. It has not begun to
// count, so that nothing of it is confirmed.
func (s *session) hearOut(ctx context.Context) {
	patience := time.After(lastWords)
	for {
		select {
		case b, more := <-s.stream.Batches():
			if !more {
				return
			}
			b.Recycle(false)
		case <-ctx.Done():
			return
		case <-patience:
			return
		}
	}
}
