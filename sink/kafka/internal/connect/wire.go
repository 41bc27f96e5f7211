package connect

import (
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
)

// kafka-go's Transport routes a request by the optional methods of its type, from a cluster layout of its own. These
// types have the fields and not the methods: they go to the endpoint that they are given to, and nowhere else first.
// For a producer id without a transaction that also spares a FindCoordinator with an empty key, at which a broker would
// create its transaction topic.
type (
	// InitProducerID asks for a producer id.
	InitProducerID initproducerid.Request
	// DescribeConfigs asks for configurations.
	DescribeConfigs describeconfigs.Request
	// CreateTopics asks for new topics.
	CreateTopics createtopics.Request
)

// ApiKey is protocol.Message.
func (*InitProducerID) ApiKey() protocol.ApiKey { return protocol.InitProducerId }

// ApiKey is protocol.Message.
func (*DescribeConfigs) ApiKey() protocol.ApiKey { return protocol.DescribeConfigs }

// ApiKey is protocol.Message.
func (*CreateTopics) ApiKey() protocol.ApiKey { return protocol.CreateTopics }

// Direct sends a message over the wire that the Transport would answer from its cache (Metadata), or whose answer it
// would act upon (CreateTopics: it waits until its own cache has the topic, which ours never has). It hides them from
// the Transport by way of Splitter and Merger, which are for requests that become several.
type Direct struct{ protocol.Message }

// Split is protocol.Splitter.
func (d Direct) Split(protocol.Cluster) ([]protocol.Message, protocol.Merger, error) {
	return []protocol.Message{d.Message}, d, nil
}

// Merge is protocol.Merger.
func (Direct) Merge(_ []protocol.Message, answers []any) (protocol.Message, error) {
	m, err := protocol.Result(answers[0])
	return received{m}, err
}

// received is the answer to a direct message.
type received struct{ protocol.Message }
