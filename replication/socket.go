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
	// lookBytes bounds what comes between two looks at the stream, by the pace of the last: half of the smallest usual
	// socket buffer, so that the sender need not wait for a look.
	lookBytes = 32 << 10
)

// socket is a connection whose reads lie apart while the stream is far behind. The server sends message by message: to
// wake a reader for each of them costs either side more than the message itself, and a reader that is behind gains
// nothing by it. With a read interval they always do, unless much comes.
//
// Below TLS it reads ahead, since each message is a TLS record of its own, and TLS reads hardly more than one.
type socket struct {
	net.Conn
	behind  func() time.Duration // nil: reads follow each other at once
	ahead   *bufio.Reader
	every   time.Duration // between two looks while little comes; 0: none
	plain   bool          // nothing is read ahead any more
	drained bool          // the last read got less than there was room for
	last    time.Time
	look    time.Duration // until the next look: every, or less at a pace; see lookBytes
	looked  time.Time     // when all that had come was read
	got     int           // bytes since
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
func (s *socket) stream(conn net.Conn, behind func() time.Duration, every time.Duration) {
	_, secure := conn.(*tls.Conn)
	s.plain, s.behind, s.every = !secure, behind, every
}

// Read is called by one goroutine at a time.
func (s *socket) Read(p []byte) (int, error) {
	if s.plain && s.ahead.Buffered() == 0 {
		return s.read(p)
	}
	return s.ahead.Read(p)
}

func (s *socket) read(p []byte) (int, error) {
	if s.drained {
		rest := s.look
		if s.behind != nil {
			rest = max(rest, min(s.behind()/restShare, mostRest))
		}
		if rest -= time.Since(s.last); rest > leastRest {
			time.Sleep(rest) // what ends a read otherwise, a deadline, waits for so long
		}
	}
	n, err := s.Conn.Read(p)
	s.drained, s.last = n < len(p), time.Now()
	if s.got += n; s.drained && s.every > 0 && n > 0 {
		s.look = min(s.every, min(s.last.Sub(s.looked), time.Second)*lookBytes/time.Duration(s.got))
		s.looked, s.got = s.last, 0
	}
	return n, err
}

// more reports whether something was read ahead, which is the next message or its beginning: the rest of that is on its
// way.
func (s *socket) more() bool { return s.ahead.Buffered() > 0 }

// reads makes a reader of a function.
type reads func(p []byte) (int, error)

func (f reads) Read(p []byte) (int, error) { return f(p) }
