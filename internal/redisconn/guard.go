package redisconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/tap"
)

// Bounds of an answer. An entry of a stream is at most as large as the largest event and its headers; what is read back
// has some 10,000 fields.
const (
	mostBulk     = 128 << 20 // bytes of one string
	mostElements = 1 << 20   // of an answer, those of its nested lists included
	mostNested   = 16        // lists in one another
	mostLine     = 64 << 10  // bytes of a status, an error or a length
)

// ErrNotRedis ends a connection whose answer does not have the form of RESP2.
var ErrNotRedis = errors.New("what answers does not speak Redis's protocol, or the answer was damaged on its way")

// guard is a connection whose answers the client may believe: it allocates what they say, panics where that is more
// than there can be, and descends as deep as lists are nested. The guard reads along and ends the connection first.
type guard struct {
	*tap.Conn
	line     []byte // the line that is being read, without what is behind its first bytes
	length   int    // of the line
	bulk     int    // bytes of a string that are still to come, with the line's end behind it
	left     []int  // elements that are still to come, of each list that is open
	elements int    // of the present answer
}

// newGuard puts a guard in front of a connection.
func newGuard(conn net.Conn) *guard {
	g := &guard{}
	g.Conn = tap.New(conn, g.look)
	return g
}

// rawGuard is one whose connection the client can ask whether it was closed while it was idle.
type rawGuard struct {
	*guard
	syscall.Conn
}

// look reads along.
func (g *guard) look(p []byte) error {
	for len(p) > 0 {
		if g.bulk > 0 {
			n := min(g.bulk, len(p))
			p = p[n:]
			if g.bulk -= n; g.bulk == 0 {
				g.done()
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		p = p[len(part):]
		g.length += len(part)
		if g.length > mostLine {
			return fmt.Errorf("%w: a line has more than %d bytes", ErrNotRedis, mostLine)
		}
		g.line = append(g.line, part[:min(len(part), 32-len(g.line))]...)
		if end < 0 {
			continue
		}
		if err := g.begun(bytes.TrimRight(g.line, "\r\n")); err != nil {
			return err
		}
		g.line, g.length = g.line[:0], 0
	}
	return nil
}

// begun takes in a whole line, or as much of it as matters.
func (g *guard) begun(line []byte) error {
	if len(line) == 0 {
		return fmt.Errorf("%w: a line is empty", ErrNotRedis)
	}
	switch line[0] {
	case '+', '-', ':':
		g.done()
		return nil
	case '$', '*':
	default:
		return fmt.Errorf("%w: it says %q", ErrNotRedis, line)
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err != nil || n < -1:
		return fmt.Errorf("%w: a length is %q", ErrNotRedis, line)
	case n == -1:
		g.done()
	case line[0] == '$':
		if n > mostBulk {
			return fmt.Errorf("%w: a string has %d bytes", ErrNotRedis, n)
		}
		g.bulk = n + len("\r\n")
	default:
		if g.elements += n; n > mostElements || g.elements > mostElements || len(g.left) == mostNested {
			return fmt.Errorf("%w: an answer has %d elements, %d lists deep", ErrNotRedis, g.elements, len(g.left)+1)
		}
		if n == 0 {
			g.done()
			return nil
		}
		g.left = append(g.left, n)
	}
	return nil
}

// done notes the end of an element, and of the lists that end with it.
func (g *guard) done() {
	for len(g.left) > 0 {
		last := len(g.left) - 1
		if g.left[last]--; g.left[last] > 0 {
			return
		}
		g.left = g.left[:last]
	}
	g.elements = 0
}

// guarded makes connections that have a guard.
func guarded(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(context.Context, string,
	string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		g := newGuard(conn)
		if raw, is := conn.(syscall.Conn); is {
			return rawGuard{g, raw}, nil
		}
		return g, nil
	}
}

// recovered turns what the client cannot digest into the command's error.
type recovered struct{}

func catch(err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("%w: the client failed on it: %v", ErrNotRedis, value)
	}
}

// DialHook is redis.Hook.
func (recovered) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is redis.Hook.
func (recovered) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		defer func() {
			if err != nil && cmd.Err() == nil {
				cmd.SetErr(err)
			}
		}()
		defer catch(&err)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook is redis.Hook.
func (recovered) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		defer catch(&err)
		return next(ctx, cmds)
	}
}
