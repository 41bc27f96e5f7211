package brokers_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// BenchmarkSQS is a whole relay, a process, before one FIFO queue. It reports events per second, and how long it takes
// from the begin of a commit to a consumer that waits, at 200 events a second. ElasticMQ copies a list of the queue's
// messages of five minutes at each message, so the rate falls with their number.
//
//	go test -run '^$' -bench SQS$ -benchtime 10000x ./test/brokers
func BenchmarkSQS(b *testing.B) {
	queues := warmSQS(b)
	measure(b, forSQS(queues.server.URL), func(topic string) target {
		queues.make(b, topic)
		return queues.target(b, topic)
	})
}

// warmSQS starts a server that is measured: Java has compiled it when this returns.
func warmSQS(t testing.TB) sqsQueues {
	t.Helper()
	const lanes, requests, together = 8, 300, 10
	queues := startSQS(t, "-Xmx2g", "-XX:+UseParallelGC")
	body := sdk.String(strings.Repeat("x", 300))
	var all sync.WaitGroup
	for lane := range lanes {
		topic := fmt.Sprintf("warm-%d", lane)
		queues.make(t, topic)
		all.Go(func() {
			for n := range requests {
				input := &sqsclient.SendMessageBatchInput{QueueUrl: queues.url(topic)}
				for i := range together {
					id := strconv.Itoa(n*together + i)
					input.Entries = append(input.Entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: body,
						MessageGroupId: sdk.String(id[len(id)-1:]), MessageDeduplicationId: &id,
						MessageAttributes: map[string]types.MessageAttributeValue{
							"id": {DataType: sdk.String("String"), StringValue: &id},
						}})
				}
				if _, err := queues.SendMessageBatch(t.Context(), input); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return queues
}

func sqsStage(t *testing.T) side {
	t.Helper()
	queues := warmSQS(t)
	s := oneAddress(t, queues.server.Addr)
	s.settings = func(addr string) []any { return forSQS("http://" + addr) }
	s.begin = func(topic string) { queues.make(t, topic) }
	s.target = func(topic string) target { return queues.target(t, topic) }
	s.read = func(topic string) []message { return queues.read(t, topic) }
	return s
}

// target is a topic's queue. The server counts its messages one by one, so it is not asked often.
func (q sqsQueues) target(b testing.TB, topic string) target {
	const apart = 50 * time.Millisecond
	var asked time.Time
	var known int
	return target{
		count: func() (n int) {
			if time.Since(asked) < apart {
				return known
			}
			asked = time.Now()
			answer, err := q.GetQueueAttributes(b.Context(), &sqsclient.GetQueueAttributesInput{QueueUrl: q.url(topic),
				AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages}})
			if err != nil {
				b.Fatal(err)
			}
			known, _ = strconv.Atoi(answer.Attributes["ApproximateNumberOfMessages"])
			return known
		},
		follow: func(came func()) {
			if _, err := q.PurgeQueue(b.Context(), &sqsclient.PurgeQueueInput{QueueUrl: q.url(topic)}); err != nil {
				b.Fatal(err)
			}
			const consumers = 4 // a consumer that waits is told within milliseconds
			for range consumers {
				go q.follow(b.Context(), topic, came)
			}
		},
	}
}

// follow takes what comes, until the context ends.
func (q sqsQueues) follow(ctx context.Context, topic string, came func()) {
	for ctx.Err() == nil {
		some, err := q.take(ctx, topic, 1)
		if err != nil {
			<-time.After(10 * time.Millisecond)
		}
		for range some {
			came()
		}
	}
}
