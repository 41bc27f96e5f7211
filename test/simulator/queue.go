package simulator

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq"
)

// queueTimeout bounds how long a broker may confirm nothing.
const queueTimeout = 4 * time.Second

// openPatience bounds how long after a driver was asked to send its first message may begin, when it has to connect.
const openPatience = time.Second + 60*time.Millisecond

// newQueueDriver makes RabbitMQ's exchanges as one process reaches them: the driver is package rabbitmq's own, with its
// client, waves and confirms; what its connections lead to is made up.
func newQueueDriver(p *process) sink.Driver {
	d, err := rabbitmq.New(rabbitmq.Config{
		URL: "amqp://guest@queues/", IDHeader: "id", TypeHeader: "type", RoutingKey: "{key}", RequestTimeout: queueTimeout,
		Dial: func(string, string, time.Duration) (net.Conn, error) { return p.dialQueues() },
	})
	if err != nil {
		panic(fmt.Sprintf("the driver for queues: %v", err))
	}
	p.witness = d
	return &queueDriver{d, p.w}
}

type queueDriver struct {
	*rabbitmq.Driver
	w *world
}

// Dropped implements [sink.Dropper].
func (d *queueDriver) Dropped(b *sink.Batch) {
	d.w.giveUp(b)
	d.Driver.Dropped(b)
}

// queueConn is a connection from one process to the broker; methods of [net.Conn] are the process's end of it. A frozen
// process neither reads nor writes. All else is guarded by world.mu.
type queueConn struct {
	p    *process
	w    *world
	roll *dice

	held    []byte        // what the process has written while it is frozen
	in      []byte        // what has been written, up to the end of a frame
	inbound fifo          // frames on their way to the broker
	back    fifo          // frames on their way to the process
	out     []byte        // what the process can read
	news    chan struct{} // closed when there is something for who reads
	readBy  time.Time     // when a read ends without anything; zero: never
	broken  bool          // nothing gets through any more
	over    error         // what the process reads when it has read all

	channels map[uint16]*queueChannel
}

// fifo does one thing after the other, some time after it was asked to.
type fifo struct {
	w     *world
	last  time.Time // when the last of them is done
	queue []func()
}

// in does f after a while, and after all that was asked for before. Called with mu held.
func (q *fifo) in(lag time.Duration, f func()) {
	at := time.Now().Add(lag)
	if at.Before(q.last) {
		at = q.last
	}
	q.last = at
	q.queue = append(q.queue, f)
	q.w.after(time.Until(at), func() {
		f := q.queue[0]
		q.queue = q.queue[1:]
		f()
	})
}

// dialQueues connects. Called without mu.
func (p *process) dialQueues() (net.Conn, error) {
	if err := p.gate(); err != nil {
		return nil, err
	}
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cluster.down {
		return nil, errAway
	}
	p.calls["dial"]++
	c := &queueConn{p: p, w: w, roll: w.dice(aboutQueue, uint64(p.number), uint64(p.calls["dial"])), inbound: fifo{w: w},
		back: fifo{w: w}, news: make(chan struct{}), channels: map[uint16]*queueChannel{}}
	return c, nil
}

// gate lets a process through that lives, when it is not frozen any more.
func (p *process) gate() error {
	for {
		p.w.mu.Lock()
		p.step("a call to the queues")
		dead, thawed := p.dead, p.thawed
		p.w.mu.Unlock()
		switch {
		case dead:
			return errDead
		case thawed == nil:
			return nil
		}
		<-thawed
	}
}

// Write implements [net.Conn]. It never waits, as a socket with room for all does not.
func (c *queueConn) Write(b []byte) (int, error) {
	w, p := c.w, c.p
	w.mu.Lock()
	defer w.mu.Unlock()
	lived := !p.dead
	p.step("a frame")
	switch {
	case p.dead:
		if lived && c.roll.chance(0.5) {
			c.take(b)
		}
		return 0, errDead
	case c.over != nil:
		return 0, io.ErrClosedPipe
	case p.thawed != nil:
		if c.held = append(c.held, b...); len(c.held) == len(b) {
			go c.release(p.thawed)
		}
	case len(c.held) > 0:
		c.held = append(c.held, b...)
	default:
		c.take(b)
	}
	return len(b), nil
}

// release lets what a frozen process has written go when it goes on.
func (c *queueConn) release(thawed <-chan struct{}) {
	<-thawed
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if !c.p.dead {
		c.take(c.held)
	}
	c.held = nil
}

// Read implements [net.Conn].
func (c *queueConn) Read(b []byte) (int, error) {
	for {
		c.w.mu.Lock()
		dead, thawed, news, readBy := c.p.dead, c.p.thawed, c.news, c.readBy
		n := 0
		if thawed == nil {
			n = copy(b, c.out)
			c.out = c.out[n:]
		}
		over := c.over
		c.w.mu.Unlock()
		switch {
		case dead:
			return 0, errDead
		case thawed != nil:
			<-thawed
			continue
		case n > 0:
			return n, nil
		case over != nil:
			return 0, over
		case !readBy.IsZero() && !time.Now().Before(readBy):
			return 0, os.ErrDeadlineExceeded
		}
		var due <-chan time.Time
		if !readBy.IsZero() {
			due = time.After(time.Until(readBy))
		}
		select {
		case <-news:
		case <-due:
		case <-c.p.died:
		}
	}
}

// tell wakes who reads. Called with mu held.
func (c *queueConn) tell() {
	close(c.news)
	c.news = make(chan struct{})
}

// Close implements [net.Conn].
func (c *queueConn) Close() error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.giveUp()
	c.broken = true
	if c.over == nil {
		c.over = net.ErrClosed
	}
	c.tell()
	return nil
}

// SetReadDeadline implements [net.Conn].
func (c *queueConn) SetReadDeadline(at time.Time) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.readBy = at
	c.tell()
	return nil
}

// SetDeadline implements [net.Conn].
func (c *queueConn) SetDeadline(at time.Time) error { return c.SetReadDeadline(at) }

// SetWriteDeadline implements [net.Conn]: no write waits.
func (c *queueConn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements [net.Conn].
func (c *queueConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr implements [net.Conn].
func (c *queueConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// cut ends the connection on its way: the process sees it some time later. Called with mu held.
func (c *queueConn) cut() {
	if c.broken {
		return
	}
	c.w.note("the connection of p%d to the queues is cut", c.p.number)
	c.w.fault(connectionCut)
	c.w.counts.Cuts++
	c.broken = true
	c.giveUp()
	c.back.in(c.roll.pause(0, one(c.roll, time.Millisecond, 300*time.Millisecond, 6*time.Second)), func() {
		if c.over == nil {
			c.over = io.EOF
		}
		c.tell()
	})
}

// giveUp lets all be sent again that may be out. Called with mu held.
func (c *queueConn) giveUp() {
	for _, ch := range c.channels {
		ch.giveUp()
	}
}
