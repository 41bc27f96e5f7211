package replication

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"time"
)

const (
	// restShare and mostRest bound the pause that being behind adds between two reads, the latter so short that the sender
	// does not find the usual socket buffer full.
	restShare = 50
	mostRest  = time.Millisecond
	leastRest = 50 * time.Microsecond // a timer needs about as long
)

// socket is a connection whose reads lie apart while the stream is far behind. The server sends message by message: to
// wake a reader for each of them costs either side more than the message itself, and a reader that is behind gains
// nothing by it.
//
// Below TLS it reads ahead, since each message is a TLS record of its own, and TLS reads hardly more than one.
type socket struct {
	net.Conn
	behind  func() time.Duration // nil: reads follow each other at once
	ahead   *bufio.Reader
	plain   bool // nothing is read ahead any more
	drained bool // the last read got less than there was room for
	last    time.Time
}

func newSocket(conn net.Conn) *socket {
	s := &socket{Conn: conn}
	s.ahead = bufio.NewReaderSize(reads(s.read), chunkSize)
	return s
}

// socketOf is the socket below a connection, with TLS or without.
func socketOf(conn net.Conn) *socket {
	if secure, is := conn.(*tls.Conn); is {
		conn = secure.NetConn()
	}
	return conn.(*socket)
}

// endReads ends the reads of the connection with the context. The function that it returns, to be called once, ends
// that: when it returns, a deadline that is set later stays.
func endReads(ctx context.Context, conn net.Conn) (unwatch func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// stream is called when the stream has begun; conn is the connection above this one, with TLS or without.
func (s *socket) stream(conn net.Conn, behind func() time.Duration) {
	_, secure := conn.(*tls.Conn)
	s.plain, s.behind = !secure, behind
}

// Read is called by one goroutine at a time.
func (s *socket) Read(p []byte) (int, error) {
	if s.plain && s.ahead.Buffered() == 0 {
		return s.read(p)
	}
	return s.ahead.Read(p)
}

func (s *socket) read(p []byte) (int, error) {
	if s.drained && s.behind != nil {
		if rest := min(s.behind()/restShare, mostRest) - time.Since(s.last); rest > leastRest {
			time.Sleep(rest) // what ends a read otherwise, a deadline, waits for so long
		}
	}
	n, err := s.Conn.Read(p)
	s.drained, s.last = n < len(p), time.Now()
	return n, err
}

// more reports whether something was read ahead, which is the next message or its beginning: the rest of that is on its
// way.
func (s *socket) more() bool { return s.ahead.Buffered() > 0 }

// reads makes a reader of a function.
type reads func(p []byte) (int, error)

func (f reads) Read(p []byte) (int, error) { return f(p) }
