package web

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"
)

const (
	// mostConnections are open at once. One more closes the oldest, so that there is always a place for a probe: it is
	// answered in a millisecond, and until then the newest.
	mostConnections = 512
	// acceptEvery is the least time between two connections, after acceptBurst at once: each of them costs CPU.
	acceptEvery = 500 * time.Microsecond
	acceptBurst = 100
)

// connections is a listener that bounds how many connections are open.
type connections struct {
	net.Listener
	credit time.Time // of acceptEvery; owned by the goroutine that accepts

	mu   sync.Mutex
	open *list.List // of *connection, the oldest first; guarded by mu
}

func newConnections(l net.Listener) *connections { return &connections{Listener: l, open: list.New()} }

// connection leaves the list when it is closed.
type connection struct {
	net.Conn
	of *connections
	at *list.Element // nil: it is closed, or is not to be closed for another; guarded by of.mu
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.pace()
	added := &connection{Conn: conn, of: c}
	c.mu.Lock()
	added.at = c.open.PushBack(added)
	var oldest *connection
	if c.open.Len() > mostConnections {
		oldest = c.open.Front().Value.(*connection)
	}
	c.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return added, nil
}

// pace waits until one more connection is due.
func (c *connections) pace() {
	now := time.Now()
	if burst := now.Add(-acceptBurst * acceptEvery); c.credit.Before(burst) {
		c.credit = burst
	}
	c.credit = c.credit.Add(acceptEvery)
	if wait := c.credit.Sub(now); wait > 0 {
		time.Sleep(wait)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.keep()
	return c.Conn.Close()
}

// keep takes it from those that are closed for others.
func (c *connection) keep() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.at != nil {
		c.of.open.Remove(c.at)
		c.at = nil
	}
}

type connectionKey struct{}

// withConnection lets handlers find the connection; see keepConnection.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, conn)
}

// keepConnection keeps the request's connection open however many others come.
func keepConnection(ctx context.Context) {
	if c, is := ctx.Value(connectionKey{}).(*connection); is {
		c.keep()
	}
}
