package rabbitmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/tap"
)

// Frames of AMQP 0-9-1, section 4.2.3: type, channel, size, payload, and an end.
const (
	frameHead      = 7
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	mostFrame      = 1 << 20 // bytes: what servers offer is 128 KiB
	ackHead        = 4 + 8   // class, method and delivery tag
	classBasic     = 60
	basicAck       = 80
	basicNack      = 120
	leastPublish   = 39 // bytes of the two frames of a publish with no exchange, key, properties or body
)

// errNotAMQP ends a connection that does not speak AMQP 0-9-1.
var errNotAMQP = errors.New("what answers does not speak AMQP 0-9-1, or the answer was damaged on its way")

// guard is a connection that passes valid frames only. A heartbeat on a channel makes the client panic in
// its own goroutine, where nothing recovers, and a confirm of a number that was never used keeps it counting forever.
type guard struct {
	*tap.Conn
	written atomic.Uint64 // bytes

	// Of the goroutine that reads.
	head   []byte // of the present frame; of a method, with as much of its payload as ackHead
	left   int    // bytes of the frame that are still to come, its end included
	method bool   // head is to have ackHead more
}

// Write is net.Conn.
func (g *guard) Write(p []byte) (int, error) {
	g.written.Add(uint64(len(p)))
	return g.Conn.Write(p)
}

// newGuard puts a guard in front of a connection.
func newGuard(conn net.Conn) *guard {
	g := &guard{}
	g.Conn = tap.New(conn, g.look)
	return g
}

// look reads along.
func (g *guard) look(p []byte) error {
	for len(p) > 0 {
		if len(g.head) < frameHead {
			n := min(frameHead-len(g.head), len(p))
			g.head, p = append(g.head, p[:n]...), p[n:]
			if len(g.head) == frameHead {
				if err := g.begun(); err != nil {
					return err
				}
			}
			continue
		}
		n := min(g.left, len(p))
		if g.method && len(g.head) < frameHead+ackHead {
			g.head = append(g.head, p[:min(n, frameHead+ackHead-len(g.head))]...)
			if len(g.head) == frameHead+ackHead {
				if err := g.confirmed(); err != nil {
					return err
				}
			}
		}
		p = p[n:]
		if g.left -= n; g.left == 0 {
			g.head = g.head[:0]
		}
	}
	return nil
}

// begun takes in the head of a frame.
func (g *guard) begun() error {
	kind, channel, size := g.head[0], binary.BigEndian.Uint16(g.head[1:]), binary.BigEndian.Uint32(g.head[3:])
	switch {
	case kind != frameMethod && kind != frameHeader && kind != frameBody && kind != frameHeartbeat, size > mostFrame:
		return fmt.Errorf("%w: a frame begins with %q", errNotAMQP, g.head)
	case kind == frameHeartbeat && (channel != 0 || size != 0):
		return fmt.Errorf("%w: a heartbeat of %d bytes on channel %d", errNotAMQP, size, channel)
	}
	g.left, g.method = int(size)+1, kind == frameMethod
	return nil
}

// confirmed takes in the begin of a method.
func (g *guard) confirmed() error {
	method := g.head[frameHead:]
	class, id := binary.BigEndian.Uint16(method), binary.BigEndian.Uint16(method[2:])
	if class != classBasic || id != basicAck && id != basicNack {
		return nil
	}
	if tag, most := binary.BigEndian.Uint64(method[4:]), g.written.Load()/leastPublish; tag > most {
		return fmt.Errorf("%w: it confirms message %d, and no more than %d were sent", errNotAMQP, tag, most)
	}
	return nil
}

// guarded makes connections that have a guard.
func guarded(dial func(network, address string) (net.Conn, error)) func(network, address string) (net.Conn, error) {
	return func(network, address string) (net.Conn, error) {
		conn, err := dial(network, address)
		if err != nil {
			return nil, err
		}
		return newGuard(conn), nil
	}
}
