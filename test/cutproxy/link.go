package cutproxy

import (
	"encoding/binary"
	"io"
	"net"
	"time"
)

// link is one client's connection and the one to its broker.
type link struct {
	proxy          *Proxy
	target         string
	client, broker net.Conn
	waiting        chan Kind // of the requests that the broker has, in order: brokers answer in order
}

// pipelined is how many requests without answer a connection may have.
const pipelined = 1024

func (p *Proxy) serve(client net.Conn, target string) {
	defer p.drop(client)
	broker, err := p.dialer.DialContext(p.ended, "tcp", target)
	if err != nil {
		return // the client sees a connection that closes at once
	}
	if !p.track(broker) {
		return
	}
	defer p.drop(broker)
	l := &link{proxy: p, target: target, client: client, broker: broker, waiting: make(chan Kind, pipelined)}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l.answers()
	}()
	late := l.requests()
	if late == nil {
		_ = client.Close()
		_ = broker.Close()
		<-answered
		return
	}
	_ = client.Close() // the client goes on without waiting for what is late
	late()
	_ = broker.Close()
	<-answered
}

// requests forwards requests until the connection is to be broken. The function that it returns, if any, delivers the
// last one.
func (l *link) requests() (late func()) {
	for {
		frame, err := readFrame(l.client)
		if err != nil || len(frame) < 12 {
			return nil
		}
		action := l.proxy.decide(Request{
			Target:  l.target,
			APIKey:  int16(binary.BigEndian.Uint16(frame[4:])),
			Version: int16(binary.BigEndian.Uint16(frame[6:])),
			Length:  len(frame) - 4,
		})
		switch action.Kind {
		case InRequest:
			_, _ = l.broker.Write(frame[:len(frame)/2])
			return nil
		case Late:
			return func() { l.deliverLate(frame, action.Delay) }
		}
		l.waiting <- action.Kind
		if _, err := l.broker.Write(frame); err != nil {
			return nil
		}
	}
}

// latePatience bounds how long the broker's answer to a late request is waited for: its end is the proof that the
// broker has worked on it.
const latePatience = 5 * time.Second

func (l *link) deliverLate(frame []byte, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.proxy.ended.Done():
		return
	}
	done := make(chan struct{})
	l.waiting <- Late
	if _, err := l.broker.Write(frame); err != nil {
		return
	}
	go func() {
		defer close(done)
		_ = l.broker.SetReadDeadline(time.Now().Add(latePatience))
	}()
	<-done
	for len(l.waiting) > 0 { // answers takes it when the broker has answered, or gives up at the deadline
		select {
		case <-time.After(time.Millisecond):
		case <-l.proxy.ended.Done():
			return
		}
	}
}

// answers forwards answers until the connection breaks or is to be broken.
func (l *link) answers() {
	defer l.client.Close()
	for {
		frame, err := readFrame(l.broker)
		if err != nil {
			return
		}
		switch <-l.waiting {
		case AfterDelivery, Late:
			return
		case InAnswer:
			_, _ = l.client.Write(frame[:len(frame)/2])
			return
		case Withhold:
			_, _ = io.Copy(io.Discard, l.broker) // until somebody closes it; nothing reaches the client any more
			return
		}
		if _, err := l.client.Write(frame); err != nil {
			return
		}
	}
}

// readFrame reads a frame with its length field.
func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > largestFrame {
		return nil, io.ErrUnexpectedEOF
	}
	frame := make([]byte, 4+n)
	copy(frame, length[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}
