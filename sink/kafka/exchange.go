package kafka

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

// produceRequest is a Produce request that puts itself on the wire, from the buffers that its batches were encoded into.
// The library's encoder would first copy all of it into pages of its own. Connecting, logging in, agreeing on a version,
// and the answer stay the library's.
type produceRequest struct {
	id       int32 // the answer carries it
	clientID string
	timeout  time.Duration // of the broker's wait for in-sync replicas
	topics   []produceTopic
	gate     *gate
	// patience is for how long the answer is waited for once all is sent; then the error is errImpatient, and the
	// connection of no use any more. 0: until the connection's deadline.
	patience time.Duration

	version int16 // what the connection speaks; of the connection's goroutine
}

type produceTopic struct {
	name       string
	partitions []producePartition
}

type producePartition struct {
	number int32
	set    []byte // the encoded record set, its length first; only read (K4)
}

// The versions of Produce that have the form which writeTo writes: batches of format v2, and no tagged fields.
const oldestProduce, newestProduce = 3, 8

// ApiKey is protocol.Message.
func (*produceRequest) ApiKey() protocol.ApiKey { return protocol.Produce }

// Required is protocol.RawExchanger: it says that RawExchange does it all.
func (r *produceRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Produce]
	return true
}

// RawExchange is protocol.RawExchanger: it sends the request and reads the answer.
func (r *produceRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if r.version < oldestProduce {
		return nil, fmt.Errorf("the broker speaks version %d of Produce, and %d is needed: it is older than Kafka 0.11", r.version, oldestProduce)
	}
	r.version = min(r.version, newestProduce)
	if !r.gate.pass() {
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
	if hurried = hurried && r.patience > 0; hurried {
		// The library takes the deadline away when this returns.
		if err := connection.SetReadDeadline(time.Now().Add(r.patience)); err != nil {
			return nil, err
		}
	}
	id, answer, err := protocol.ReadResponse(rw, protocol.Produce, r.version)
	switch {
	case hurried && errors.Is(err, os.ErrDeadlineExceeded):
		err = errImpatient
	case err == nil && id != r.id:
		err = fmt.Errorf("the broker answered request %d, and %d was asked", id, r.id)
	}
	return answer, err
}

// gathered is up to how many bytes parts of a request are gathered into one write; what a larger part has beyond that
// goes straight from where it is.
const gathered = 16 << 10

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, gathered) }}

// writeTo writes the request (Kafka protocol guide, "Produce API", request header v1).
func (r *produceRequest) writeTo(w *bufio.Writer) error {
	b := binary.BigEndian
	head := make([]byte, 0, 64)
	head = b.AppendUint32(head, uint32(r.size()))
	head = b.AppendUint16(head, uint16(protocol.Produce))
	head = b.AppendUint16(head, uint16(r.version))
	head = b.AppendUint32(head, uint32(r.id))
	head = appendString(head, r.clientID)
	head = b.AppendUint16(head, ^uint16(0))     // no transactional id
	head = b.AppendUint16(head, uint16(0xffff)) // acks: all in-sync replicas
	head = b.AppendUint32(head, uint32(r.timeout/time.Millisecond))
	head = b.AppendUint32(head, uint32(len(r.topics)))
	for i := range r.topics {
		t := &r.topics[i]
		head = appendString(head, t.name)
		head = b.AppendUint32(head, uint32(len(t.partitions)))
		for j := range t.partitions {
			p := &t.partitions[j]
			head = b.AppendUint32(head, uint32(p.number))
			if _, err := w.Write(head); err != nil {
				return err
			}
			if _, err := w.Write(p.set); err != nil {
				return err
			}
			head = head[:0]
		}
	}
	return w.Flush()
}

// size is the length of the request without its own length field.
func (r *produceRequest) size() int {
	n := 2 + 2 + 4 + 2 + len(r.clientID) + 2 + 2 + 4 + 4
	for i := range r.topics {
		t := &r.topics[i]
		n += 2 + len(t.name) + 4
		for j := range t.partitions {
			n += 4 + len(t.partitions[j].set)
		}
	}
	return n
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// gate makes certain whether the bytes of a request were ever read by a connection. It is shut when the answer will not
// be waited for any longer, or at a time; whoever comes later reads nothing, and the request is never sent.
type gate struct {
	state atomic.Int32
	until time.Time // zero: no such time
}

const (
	gateOpen int32 = iota
	gatePassed
	gateShut
)

// pass says whether the bytes may be read. It is asked once, by the connection.
func (g *gate) pass() bool {
	if !g.until.IsZero() && time.Now().After(g.until) {
		g.shut()
	}
	return g.state.CompareAndSwap(gateOpen, gatePassed)
}

// shut says whether nobody has passed; then nobody ever will.
func (g *gate) shut() bool {
	return g.state.CompareAndSwap(gateOpen, gateShut) || g.state.Load() == gateShut
}

var errGivenUp = errors.New("the request was given up before it was sent")
