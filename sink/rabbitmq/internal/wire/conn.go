package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
)

// Commands of the stream protocol. Responses have the highest bit set.
const (
	declarePublisher = 1
	publish          = 2
	publishConfirm   = 3
	publishError     = 4
	querySequence    = 5
	subscribe        = 7
	deliver          = 8
	credit           = 9
	unsubscribe      = 12
	createStream     = 13
	metadata         = 15
	metadataUpdate   = 16
	peerProperties   = 17
	saslHandshake    = 18
	saslAuthenticate = 19
	tune             = 20
	openHost         = 21
	closeConnection  = 22
	responseBit      = 0x8000
)

const (
	// DefaultFrameLimit is the servers' default limit of a frame, in bytes.
	DefaultFrameLimit = 1 << 20

	protocolVersion = 1
	publisherID     = 0        // the only one of a connection
	largestFrame    = 64 << 20 // of what a server sends: a chunk of a stream
)

// frame is a received frame without its length.
type frame struct {
	command uint16 // without the response's bit
	body    []byte // behind command and version; valid until the next read
}

// Conn is a connection with at most one question out. It is for one goroutine at a time; every question has the
// connection's patience to be answered.
type Conn struct {
	net.Conn
	reader   *bufio.Reader
	patience time.Duration

	FrameLimit int // bytes that the server takes of a frame
	About      map[string]string
	Advertised string // host:port of the node, as it tells clients; empty: not told

	correlation uint32
	out, in     []byte
}

// begin begins a frame; length and, for questions, correlation are filled in when it is sent.
func (c *Conn) begin(command uint16) {
	c.out = append(c.out[:0], 0, 0, 0, 0)
	c.out = binary.BigEndian.AppendUint16(c.out, command)
	c.out = binary.BigEndian.AppendUint16(c.out, protocolVersion)
}

// question begins a frame that has an answer.
func (c *Conn) question(command uint16) {
	c.begin(command)
	c.correlation++
	c.out = binary.BigEndian.AppendUint32(c.out, c.correlation)
}

func (c *Conn) short(n uint16) { c.out = binary.BigEndian.AppendUint16(c.out, n) }

func (c *Conn) text(s string) {
	c.short(uint16(len(s)))
	c.out = append(c.out, s...)
}

func (c *Conn) texts(pairs map[string]string) {
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(pairs)))
	for name, value := range pairs {
		c.text(name)
		c.text(value)
	}
}

// Send writes the frame.
func (c *Conn) Send() error {
	binary.BigEndian.PutUint32(c.out, uint32(len(c.out)-4))
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return fmt.Errorf("speak to RabbitMQ: %w", err)
	}
	if _, err := c.Write(c.out); err != nil {
		return fmt.Errorf("speak to RabbitMQ: %w", err)
	}
	return nil
}

// read reads a frame. What says that the connection or the stream has ended is an error.
func (c *Conn) read() (f frame, err error) {
	var head [4]byte
	if _, err := io.ReadFull(c.reader, head[:]); err != nil {
		return f, fmt.Errorf("read from RabbitMQ: %w", err)
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > largestFrame {
		return f, fmt.Errorf("read from RabbitMQ: a frame of %d bytes; is this the port of the stream protocol?", n)
	}
	if err := c.fill(n); err != nil {
		return f, fmt.Errorf("read from RabbitMQ: %w", err)
	}
	f = frame{binary.BigEndian.Uint16(c.in) &^ responseBit, c.in[4:]}
	r := fields{rest: f.body}
	switch f.command {
	case closeConnection:
		r.number(4)
		code := r.number(2)
		return f, fmt.Errorf("RabbitMQ closed the connection: %w: %s", Answer(code), r.text())
	case metadataUpdate:
		code := r.number(2)
		return f, fmt.Errorf("stream %s: %w", r.text(), Answer(code))
	}
	return f, nil
}

// believed is how much room a frame gets on its word alone; beyond it room grows as bytes arrive.
const believed = 64 << 10

// fill reads n bytes into in.
func (c *Conn) fill(n int) error {
	for c.in = c.in[:0]; len(c.in) < n; {
		have := len(c.in)
		more := min(n-have, max(have, believed))
		c.in = slices.Grow(c.in, more)[:have+more]
		if _, err := io.ReadFull(c.reader, c.in[have:]); err != nil {
			return err
		}
	}
	return nil
}

// ask sends the question and reads until its answer, whose fields behind the code it returns; other frames go to other,
// if there is one.
func (c *Conn) ask(other func(frame) error) (*fields, error) {
	command, correlation := binary.BigEndian.Uint16(c.out[4:]), c.correlation
	if err := c.Send(); err != nil {
		return nil, err
	}
	for {
		f, err := c.read()
		if err != nil {
			return nil, err
		}
		r := &fields{rest: f.body}
		if f.command != command {
			if other != nil {
				if err := other(f); err != nil {
					return nil, err
				}
			}
			continue
		}
		if uint32(r.number(4)) != correlation {
			continue
		}
		if command == metadata { // the only answer without a code
			return r, r.err
		}
		if code := r.number(2); r.err == nil && code != codeOK {
			return nil, Answer(code)
		}
		return r, r.err
	}
}

// fields reads what a frame is made of.
type fields struct {
	rest []byte
	err  error
}

func (r *fields) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.err, r.rest = errors.New("read from RabbitMQ: a frame ends too early"), nil
		return make([]byte, min(max(n, 0), 8))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// number is an unsigned number of n bytes.
func (r *fields) number(n int) (v uint64) {
	for _, b := range r.bytes(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

func (r *fields) text() string {
	n := int(int16(r.number(2))) // -1: null
	return string(r.bytes(max(n, 0)))
}

func (r *fields) texts() map[string]string {
	pairs := map[string]string{}
	for n := r.number(4); n > 0 && r.err == nil; n-- {
		name := r.text()
		pairs[name] = r.text()
	}
	return pairs
}

// Options are where a connection leads, and how.
type Options struct {
	Address     string // host:port
	User        string
	Password    string
	VirtualHost string
	Name        string       // of the connection, in the server's lists
	TLS         *certs.Files // nil: none
	// DialTimeout bounds connecting and logging in, RequestTimeout each question.
	DialTimeout, RequestTimeout time.Duration
}

// Dial connects and logs in.
func Dial(ctx context.Context, o *Options) (*Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	conn, err := o.connect(bounded)
	if certs.IsError(err) {
		err = ConfigurationError{Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	conn.patience = o.RequestTimeout
	return conn, nil
}

func (o *Options) connect(ctx context.Context) (*Conn, error) {
	socket, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	conn := &Conn{Conn: socket, reader: bufio.NewReaderSize(socket, 64<<10), patience: o.DialTimeout,
		FrameLimit: DefaultFrameLimit}
	if err := conn.login(o); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return conn, nil
}

// open connects, secured if it is to be.
func (o *Options) open(ctx context.Context) (net.Conn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "tcp", o.Address)
	if err != nil || o.TLS == nil {
		return socket, err
	}
	host, _, _ := net.SplitHostPort(o.Address) // it was dialled
	secured, err := o.TLS.Secure(ctx, socket, host)
	if err != nil {
		return nil, err // and no interface around a nil
	}
	return secured, nil
}

// login makes the connection one to the virtual host.
func (c *Conn) login(o *Options) error {
	c.question(peerProperties)
	c.texts(map[string]string{"product": "cdc-relay", "connection_name": o.Name})
	r, err := c.ask(nil)
	if err != nil {
		return err
	}
	c.About = r.texts()
	c.question(saslHandshake)
	if _, err := c.ask(nil); err != nil {
		return err
	}
	c.question(saslAuthenticate)
	c.text("PLAIN")
	response := "\x00" + o.User + "\x00" + o.Password
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(response)))
	c.out = append(c.out, response...)
	limits := uint64(0)
	hear := func(f frame) error {
		if f.command == tune {
			limits = (&fields{rest: f.body}).number(4)
		}
		return nil
	}
	if _, err = c.ask(hear); err != nil {
		return err
	}
	for limits == 0 { // the server says it when it has let us in
		f, err := c.read()
		if err == nil {
			err = hear(f)
		}
		if err != nil {
			return err
		}
	}
	if limits < DefaultFrameLimit {
		c.FrameLimit = int(limits)
	}
	c.begin(tune | responseBit)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(c.FrameLimit))
	c.out = binary.BigEndian.AppendUint32(c.out, 0) // no heartbeats: no one listens between two questions
	if err := c.Send(); err != nil {
		return err
	}
	c.question(openHost)
	c.text(o.VirtualHost)
	if r, err = c.ask(nil); err != nil {
		return err
	}
	if len(r.rest) > 0 { // servers before 3.9 do not say it
		about := r.texts()
		c.Advertised = net.JoinHostPort(about["advertised_host"], about["advertised_port"])
	}
	return r.err
}

// Stream asks whether there is such a stream, and one that leads it.
func (c *Conn) Stream(name string) error {
	_, err := c.Leader(name)
	return err
}

// Leader asks for the address of the node that leads the stream, as that node advertises it.
func (c *Conn) Leader(name string) (address string, err error) {
	c.question(metadata)
	c.out = binary.BigEndian.AppendUint32(c.out, 1)
	c.text(name)
	r, err := c.ask(nil)
	if err != nil {
		return "", err
	}
	nodes := map[uint64]string{}
	for n := r.number(4); n > 0 && r.err == nil; n-- {
		reference := r.number(2)
		host := r.text()
		nodes[reference] = net.JoinHostPort(host, strconv.FormatUint(r.number(4), 10))
	}
	r.number(4) // of one stream
	_ = r.text()
	if code := r.number(2); r.err == nil && code != codeOK {
		return "", Answer(code)
	}
	leader := r.number(2)
	return nodes[leader], r.err
}
