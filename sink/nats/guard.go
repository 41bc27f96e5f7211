package nats

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/tap"
)

const (
	mostLine    = 1 << 20   // bytes: INFO of a large cluster has some 10 KiB
	mostMessage = 128 << 20 // bytes: servers take 64 MiB at most
	tlsRecord   = 0x16      // what the first bytes of a TLS handshake are: no line of NATS begins so
)

// errNotNATS ends a connection that does not speak NATS's protocol.
var errNotNATS = errors.New("what answers does not speak NATS's protocol, or the answer was damaged on its way")

// guard is a connection whose lines and sizes the client may believe: it allocates what a message says, in a goroutine
// of its own where nothing recovers. Behind a handshake it sees only TLS's records, from a server whose certificate was
// verified, and looks no further.
type guard struct {
	*tap.Conn
	line    []byte
	payload int // bytes of a message that are still to come
	secured bool
}

// newGuard puts a guard in front of a connection.
func newGuard(conn net.Conn) *guard {
	g := &guard{}
	g.Conn = tap.New(conn, g.look)
	return g
}

// look reads along.
func (g *guard) look(p []byte) error {
	for len(p) > 0 && !g.secured {
		if g.payload > 0 {
			n := min(g.payload, len(p))
			p = p[n:]
			g.payload -= n
			continue
		}
		if g.secured = len(g.line) == 0 && p[0] == tlsRecord; g.secured {
			return nil
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		p = p[len(part):]
		if len(g.line)+len(part) > mostLine {
			return fmt.Errorf("%w: a line has more than %d bytes", errNotNATS, mostLine)
		}
		g.line = append(g.line, part...)
		if end < 0 {
			continue
		}
		if err := g.begun(); err != nil {
			return err
		}
		g.line = g.line[:0]
	}
	return nil
}

// begun takes in a line.
func (g *guard) begun() error {
	words := bytes.Fields(g.line)
	if len(words) == 0 || !bytes.EqualFold(words[0], []byte("MSG")) && !bytes.EqualFold(words[0], []byte("HMSG")) {
		return nil // the client refuses what it does not know
	}
	sizes := 1
	if len(words[0]) == len("HMSG") {
		sizes = 2 // of the headers, and of all
	}
	last := 0
	for _, word := range words[max(len(words)-sizes, 1):] {
		n, err := strconv.Atoi(string(word))
		if err != nil || n < last || n > mostMessage {
			return fmt.Errorf("%w: a message begins with %.200q", errNotNATS, g.line)
		}
		last = n
	}
	g.payload = last + len("\r\n")
	return nil
}

// guards dials connections that have a guard.
type guards struct{ dialer net.Dialer }

// Dial is the client's CustomDialer.
func (d guards) Dial(network, address string) (net.Conn, error) {
	conn, err := d.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return newGuard(conn), nil
}
