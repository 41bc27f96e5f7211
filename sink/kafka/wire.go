package kafka

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// kafka-go's Transport routes a request by the optional methods of its type, from a cluster layout of its own. These
// types have the fields and not the methods: they go to the endpoint that they are given to, and nowhere else first.
// For a producer id without a transaction that also spares a FindCoordinator with an empty key, at which a broker would
// create its transaction topic.
type (
	produceRequest  rawproduce.Request
	initProducerID  initproducerid.Request
	describeConfigs describeconfigs.Request
	createTopics    createtopics.Request
)

func (*produceRequest) ApiKey() protocol.ApiKey           { return protocol.Produce }
func (*produceRequest) TypeKey() protocol.OverrideTypeKey { return protocol.RawProduceOverride }
func (*initProducerID) ApiKey() protocol.ApiKey           { return protocol.InitProducerId }
func (*describeConfigs) ApiKey() protocol.ApiKey          { return protocol.DescribeConfigs }
func (*createTopics) ApiKey() protocol.ApiKey             { return protocol.CreateTopics }
func (direct) Merge(_ []protocol.Message, answers []any) (protocol.Message, error) {
	m, err := protocol.Result(answers[0])
	return received{m}, err
}

// direct sends a message over the wire that the Transport would answer from its cache (Metadata), or whose answer it
// would act upon (CreateTopics: it waits until its own cache has the topic, which ours never has). It hides them from
// the Transport by way of Splitter and Merger, which are for requests that become several.
type direct struct{ protocol.Message }

// Split is protocol.Splitter.
func (d direct) Split(protocol.Cluster) ([]protocol.Message, protocol.Merger, error) {
	return []protocol.Message{d.Message}, d, nil
}

// received is the answer to a direct message.
type received struct{ protocol.Message }

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

func (g *gate) pass() bool {
	if !g.until.IsZero() && g.state.Load() == gateOpen && time.Now().After(g.until) {
		g.shut()
	}
	return g.state.CompareAndSwap(gateOpen, gatePassed) || g.state.Load() == gatePassed
}

// shut says whether nobody has passed; then nobody ever will.
func (g *gate) shut() bool {
	return g.state.CompareAndSwap(gateOpen, gateShut) || g.state.Load() == gateShut
}

var errGivenUp = errors.New("the request was given up before it was sent")

// guarded reads bytes behind a gate. Each attempt has its own, over the same immutable bytes.
type guarded struct {
	gate *gate
	rest []byte
}

// Read is io.Reader.
func (g *guarded) Read(p []byte) (int, error) {
	if !g.gate.pass() {
		return 0, errGivenUp
	}
	if len(g.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// WriteTo spares io.Copy its buffer.
func (g *guarded) WriteTo(w io.Writer) (int64, error) {
	if !g.gate.pass() {
		return 0, errGivenUp
	}
	n, err := w.Write(g.rest)
	g.rest = g.rest[n:]
	return int64(n), err
}
