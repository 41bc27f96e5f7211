package connect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// Produce is a Produce request that puts itself on the wire, from the buffers that its batches were encoded into. The
// library's encoder would first copy all of it into pages of its own. Connecting, logging in, agreeing on a version,
// and the answer stay the library's.
type Produce struct {
	ID       int32 // the answer carries it
	ClientID string
	Timeout  time.Duration // of the broker's wait for in-sync replicas
	Topics   []Topic
	Gate     *Gate
	// Patience is for how long the answer is waited for once all is sent; then the error is ErrImpatient, and the
	// connection of no use any more. 0: until the connection's deadline.
	Patience time.Duration

	version int16 // what the connection speaks; of the connection's goroutine
}

// Topic is the batches of a request that are for one topic.
type Topic struct {
	Name       string
	Partitions []Partition
}

// Partition is the one batch of a request that is for a partition.
type Partition struct {
	Number int32
	Set    []byte // the encoded record set, its length first; only read (K4)
}

// The versions of Produce that have the form which writeTo writes: batches of format v2, and no tagged fields.
const oldestProduce, newestProduce = 3, 8

// ApiKey is protocol.Message.
func (*Produce) ApiKey() protocol.ApiKey { return protocol.Produce }

// Required is protocol.RawExchanger: it says that RawExchange does it all.
func (r *Produce) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Produce]
	return true
}

// RawExchange is protocol.RawExchanger: it sends the request and reads the answer.
func (r *Produce) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if r.version < oldestProduce {
		return nil, fmt.Errorf("the broker speaks version %d of Produce, and %d is needed: it is older than Kafka 0.11",
			r.version, oldestProduce)
	}
	r.version = min(r.version, newestProduce)
	if !r.Gate.pass() {
		return nil, errGivenUp
	}
	w := writers.Get().(*bufio.Writer)
	w.Reset(rw)
	err := r.writeTo(w)
	w.Reset(nil)
	writers.Put(w)
	if err != nil {
		return nil, err
	}
	connection, hurried := rw.(net.Conn)
	if hurried = hurried && r.Patience > 0; hurried {
		// The library takes the deadline away when this returns.
		if err := connection.SetReadDeadline(time.Now().Add(r.Patience)); err != nil {
			return nil, err
		}
	}
	id, answer, err := protocol.ReadResponse(rw, protocol.Produce, r.version)
	switch {
	case hurried && errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrImpatient
	case err == nil && id != r.ID:
		err = fmt.Errorf("the broker answered request %d, and %d was asked", id, r.ID)
	}
	return answer, err
}

// gathered is up to how many bytes parts of a request are gathered into one write; what a larger part has beyond that
// goes straight from where it is.
const gathered = 16 << 10

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, gathered) }}

// writeTo writes the request (Kafka protocol guide, "Produce API", request header v1).
func (r *Produce) writeTo(w *bufio.Writer) error {
	b := binary.BigEndian
	head := make([]byte, 0, 64)
	head = b.AppendUint32(head, uint32(r.Size()))
	head = b.AppendUint16(head, uint16(protocol.Produce))
	head = b.AppendUint16(head, uint16(r.version))
	head = b.AppendUint32(head, uint32(r.ID))
	head = appendString(head, r.ClientID)
	head = b.AppendUint16(head, ^uint16(0))     // no transactional id
	head = b.AppendUint16(head, uint16(0xffff)) // acks: all in-sync replicas
	head = b.AppendUint32(head, uint32(r.Timeout/time.Millisecond))
	head = b.AppendUint32(head, uint32(len(r.Topics)))
	for i := range r.Topics {
		t := &r.Topics[i]
		head = appendString(head, t.Name)
		head = b.AppendUint32(head, uint32(len(t.Partitions)))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			head = b.AppendUint32(head, uint32(p.Number))
			if _, err := w.Write(head); err != nil {
				return err
			}
			if _, err := w.Write(p.Set); err != nil {
				return err
			}
			head = head[:0]
		}
	}
	return w.Flush()
}

// Size is the length of the request without its own length field.
func (r *Produce) Size() int {
	n := 2 + 2 + 4 + 2 + len(r.ClientID) + 2 + 2 + 4 + 4
	for i := range r.Topics {
		t := &r.Topics[i]
		n += 2 + len(t.Name) + 4
		for j := range t.Partitions {
			n += 4 + len(t.Partitions[j].Set)
		}
	}
	return n
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// Gate makes certain whether the bytes of a request were ever read by a connection. It is shut when the answer will not
// be waited for any longer, or at a time; a later reader gets nothing, and the request is never sent.
type Gate struct {
	state atomic.Int32
	Until time.Time // zero: no such time
}

const (
	gateOpen int32 = iota
	gatePassed
	gateShut
)

// pass reports whether the bytes may be read. It is asked once, by the connection.
func (g *Gate) pass() bool {
	if !g.Until.IsZero() && time.Now().After(g.Until) {
		g.Shut()
	}
	return g.state.CompareAndSwap(gateOpen, gatePassed)
}

// Shut reports whether no one has passed; then no one ever will.
func (g *Gate) Shut() bool {
	return g.state.CompareAndSwap(gateOpen, gateShut) || g.state.Load() == gateShut
}

// ErrImpatient ends a request whose answer takes longer than its Patience.
var ErrImpatient = errors.New("the answer takes unusually long")

var errGivenUp = errors.New("the request was abandoned before it was sent")
