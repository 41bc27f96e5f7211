package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// toSQS sends batches of ten to a FIFO queue, the keys over some lanes. Each lane keeps the order of its keys.
type toSQS struct {
	client *sqsclient.Client
	url    string
}

func newToSQS(l loop) (toSQS, error) {
	endpoint := "http://" + l.Broker
	c, err := awsconfig.LoadDefaultConfig(context.Background())
	if err != nil {
		return toSQS{}, err
	}
	client := sqsclient.NewFromConfig(c, func(o *sqsclient.Options) { o.BaseEndpoint = &endpoint })
	return toSQS{client, endpoint + "/000000000000/" + queueName(l.Topic)}, nil
}

func (toSQS) close() {}

func (p toSQS) publish(ctx context.Context, rows []outgoing) error {
	const lanes, together = 8, 10
	var of [lanes][]types.SendMessageBatchRequestEntry
	for i, r := range rows {
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(r.key))
		lane := &of[hash.Sum32()%lanes]
		*lane = append(*lane, types.SendMessageBatchRequestEntry{
			Id: sdk.String(fmt.Sprint(i)), MessageBody: &r.payload, MessageGroupId: &r.key, MessageDeduplicationId: &r.id,
			MessageAttributes: map[string]types.MessageAttributeValue{
				"id": {DataType: sdk.String("String"), StringValue: &r.id},
			},
		})
	}
	var failed [lanes]error
	var all sync.WaitGroup
	for i, lane := range of {
		all.Go(func() {
			for len(lane) > 0 && failed[i] == nil {
				n := min(together, len(lane))
				answer, err := p.client.SendMessageBatch(ctx, &sqsclient.SendMessageBatchInput{QueueUrl: &p.url, Entries: lane[:n]})
				if err == nil && len(answer.Failed) > 0 {
					err = fmt.Errorf("%d entries failed, the first: %s", len(answer.Failed), sdk.ToString(answer.Failed[0].Code))
				}
				failed[i], lane = err, lane[n:]
			}
		})
	}
	all.Wait()
	return errors.Join(failed[:]...)
}
