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
	_ = client.Close() // also when a request is late: its client goes on without it
	if late != nil {
		late()
		<-answered
	}
	_ = broker.Close()
	<-answered
}

// requests forwards requests until the connection breaks or is to be broken. The function that it returns, if any, is
// to deliver the last one when the client's connection is closed.
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
			return func() { l.deliver(frame, action.Delay) }
		}
		l.waiting <- action.Kind
		if _, err := l.broker.Write(frame); err != nil {
			return nil
		}
	}
}

// latePatience bounds how long the broker may take to answer a late request. Its answer is waited for because a broker
// may drop what it has not read when the connection closes.
const latePatience = 5 * time.Second

// deliver gives the broker a request after the delay.
func (l *link) deliver(frame []byte, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.proxy.ended.Done():
	}
	_ = l.broker.SetReadDeadline(time.Now().Add(latePatience)) // ends answers, if nothing else does
	l.waiting <- Late
	_, _ = l.broker.Write(frame)
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
			_, _ = io.Copy(io.Discard, l.broker) // until someone closes it; nothing reaches the client any more
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
