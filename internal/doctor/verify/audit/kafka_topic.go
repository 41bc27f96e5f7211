package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

// topic asks a broker about the topic. The error is UnknownTopicOrPartition only when that can be believed: a
// broker may hear of a new topic, or of its leaders, later than the relay did.
func (k onKafka) topic(ctx context.Context, topic string) (*metadata.ResponseTopic, error) {
	for {
		told, err := k.topicOnce(ctx, topic)
		code, answered := errors.AsType[kafkago.Error](err)
		switch {
		case err == nil:
			return told, nil
		case errors.Is(err, kafkago.TopicAuthorizationFailed):
			return nil, fmt.Errorf("%w; grant the principal Describe and Read on the topic", err)
		case !answered || !slices.Contains(leaderless, code) || time.Now().After(k.settled):
			return nil, err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// topicOnce asks by the topic's name. The client's own Metadata answers from what it knows of all topics, in which one
// that the principal may not describe is like one that is not there: its events would be called lost.
func (k onKafka) topicOnce(ctx context.Context, topic string) (*metadata.ResponseTopic, error) {
	asking, cancel := context.WithTimeout(ctx, k.client.Timeout)
	defer cancel()
	answer, err := k.client.Transport.RoundTrip(asking, k.client.Addr,
		direct{&metadata.Request{TopicNames: []string{topic}}})
	if err != nil {
		return nil, fmt.Errorf("ask for topic %s: %w", topic, err)
	}
	if got, is := answer.(received); is {
		if r, is := got.Message.(*metadata.Response); is && len(r.Topics) == 1 && r.Topics[0].Name == topic {
			if r.Topics[0].ErrorCode != 0 {
				err = fmt.Errorf("ask for topic %s: %w", topic, kafkago.Error(r.Topics[0].ErrorCode))
			}
			return &r.Topics[0], err
		}
	}
	return nil, fmt.Errorf("ask for topic %s: the broker answers about another", topic)
}

// direct hides a question from the client's Transport, which would answer it itself, behind the form of those that
// become several: see [protocol.Splitter].
type direct struct{ protocol.Message }

// Split is protocol.Splitter.
func (d direct) Split(protocol.Cluster) ([]protocol.Message, protocol.Merger, error) {
	return []protocol.Message{d.Message}, d, nil
}

// Merge is protocol.Merger.
func (direct) Merge(_ []protocol.Message, answers []any) (protocol.Message, error) {
	m, err := protocol.Result(answers[0])
	return received{m}, err
}

// received is the answer to what is direct; the Transport would take the bare one for that of a question of its own.
type received struct{ protocol.Message }
