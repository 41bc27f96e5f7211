package connect

import (
	"context"
	"net"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Lines are a kafka-go Transport whose connections are renewed in time. A broker that bounds sessions ends a
// connection at the first request that comes after its end (KIP-368), and kafka-go neither logs in again nor knows of
// it. Before the first of its sessions ends the Transport is given up for another one with fresh connections; requests
// on their way are answered by the old ones.
type Lines struct {
	dialer *Dialer
	fresh  func() *kafkago.Transport

	mu  sync.Mutex
	now *line // nil: made at the next request
}

// line is one Transport. Its fields are guarded by the mutex of Lines, but for the first, which does not change.
type line struct {
	transport *kafkago.Transport
	renewal   time.Time // of its first session to end; zero: none ends
	users     int       // requests on their way
	over      bool      // another one has taken its place
}

// Lines are those of Transports that fresh makes; their connections are this dialer's.
func (d *Dialer) Lines(fresh func() *kafkago.Transport) *Lines {
	return &Lines{dialer: d, fresh: fresh}
}

// RoundTrip is kafkago.RoundTripper.
func (s *Lines) RoundTrip(ctx context.Context, address net.Addr, request kafkago.Request) (
	_ kafkago.Response, err error,
) {
	l := s.take()
	defer s.leave(l, false)
	defer recovered(&err)
	return l.transport.RoundTrip(ctx, address, request)
}

// CloseIdleConnections gives up the connections that are not in use; the others are closed when their request has its
// answer.
func (s *Lines) CloseIdleConnections() {
	s.mu.Lock()
	l := s.now
	s.now = nil
	if l != nil {
		l.over = true
	}
	s.mu.Unlock()
	if l != nil {
		l.transport.CloseIdleConnections()
	}
}

// take is the Transport for a request. Who takes it leaves it.
func (s *Lines) take() *line {
	s.mu.Lock()
	before := s.now
	if before != nil && !before.renewal.IsZero() && !time.Now().Before(before.renewal) {
		before.over, s.now = true, nil
	}
	if s.now == nil {
		s.now = s.next()
	}
	l := s.now
	l.users++
	s.mu.Unlock()
	if before != nil && before != l {
		before.transport.CloseIdleConnections()
	}
	return l
}

// next is a line without connections.
func (s *Lines) next() *line {
	l := &line{transport: s.fresh()}
	l.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := s.dialer.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.opened(l, c.renewal)
		return c, nil
	}
	return l
}

func (s *Lines) opened(l *line, renewal time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !renewal.IsZero() && (l.renewal.IsZero() || renewal.Before(l.renewal)) {
		l.renewal = renewal
	}
}

// leave ends the use of a Transport, and the Transport itself if it is broken, or if it was the last use of one whose
// time is over: a request that came late may have opened connections since.
func (s *Lines) leave(l *line, broken bool) {
	s.mu.Lock()
	l.users--
	if broken {
		l.over = true
	}
	if l.over && s.now == l {
		s.now = nil
	}
	end := broken || l.over && l.users == 0
	s.mu.Unlock()
	if end {
		l.transport.CloseIdleConnections()
	}
}
