package rabbitmq

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A server with an alarm of memory or disk sends heartbeats and reads nothing. Each heartbeat moves the client's read
// deadline, so a close that waits for the server's answer would wait until the alarm is over, and with it whoever opens
// a channel next.
func TestConnectionThatOnlyHeartbeatsIsClosedInTime(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	said := answers()
	delete(said, [4]byte{0, 20, 0, 10}) // channel.open
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		beating := make(chan struct{})
		go func() {
			defer close(beating)
			for range time.Tick(50 * time.Millisecond) {
				if _, err := conn.Write(frameOf(8, 0)); err != nil {
					return
				}
			}
		}()
		serve(conn, said)
		<-beating
	}()
	c := Config{URL: "amqp://guest:guest@" + l.Addr().String(), DialTimeout: 10 * time.Second,
		RequestTimeout: time.Hour, Dial: net.DialTimeout}
	conn, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	release := conn.endWith(ctx)
	opened := make(chan error, 1)
	go func() {
		_, err := conn.Channel()
		opened <- err
	}()
	cancel()
	ended := make(chan struct{})
	go func() {
		release()
		conn.end() // of the driver's Close
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the connection is still open a minute after its context ended")
	}
	if err := <-opened; err == nil {
		t.Error("a channel was opened that the server did not confirm")
	}
	_ = l.Close()
	<-accepted
}
