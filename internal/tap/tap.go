// Package tap reads along on a connection and ends it before its client gets bytes that it must not believe. What is
// believed is decided by the guard of each protocol.
//
// Tested by the guards: internal/redisconn, sink/nats, sink/rabbitmq.
package tap

import "net"

// Conn is a connection whose bytes pass a check before they are returned. One goroutine reads it.
type Conn struct {
	net.Conn
	check  func(p []byte) error
	broken error
}

// New returns conn with a check of all that is read from it, in order and in any portions. After its first error the
// connection is closed, and each Read returns that error.
func New(conn net.Conn, check func(p []byte) error) *Conn { return &Conn{Conn: conn, check: check} }

// Read is net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.broken != nil {
		return 0, c.broken
	}
	n, err := c.Conn.Read(p)
	if c.broken = c.check(p[:n]); c.broken != nil {
		_ = c.Conn.Close()
		return 0, c.broken
	}
	return n, err
}
