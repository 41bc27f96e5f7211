package brokers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One message fails each time. Breaks it catches: an effect that is lost, or there twice, when the consumer dies
// or wakes behind another; a message that fails and does not come to the dead-letter queue, or brings others there.
func TestConsumerOfSQSHandlesEachEventOnce(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	harness.AWSLogin(t)
	server := harness.StartElasticMQ(t)
	login, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := sqs.NewFromConfig(login, func(o *sqs.Options) { o.BaseEndpoint = &server.URL })
	fifo := func(name string, attributes map[string]string) (url *string) {
		attributes["FifoQueue"] = "true"
		made, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		return made.QueueUrl
	}
	dead := fifo("dead.fifo", map[string]string{})
	// More receives than two kills and a freeze cost.
	const most = 6
	var queue *string
	judge(t, scenario{
		sink: []any{"sink", "sqs", "sqs.endpoint", server.URL},
		begin: func(_ *harness.Relay, topic string) {
			queue = fifo(strings.ReplaceAll(topic, ".", "-")+".fifo", map[string]string{"VisibilityTimeout": "5",
				"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn": "arn:aws:sqs:%s:000000000000:dead.fifo",
					"maxReceiveCount": "%d"}`, harness.AWSRegion, most)})
			if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: queue,
				MessageBody: aws.String("no JSON"), MessageGroupId: aws.String("bad"),
				MessageDeduplicationId: aws.String("bad"), MessageAttributes: map[string]types.MessageAttributeValue{
					"id": {DataType: aws.String("String"), StringValue: aws.String("bad")}},
			}); err != nil {
				t.Fatal(err)
			}
		},
		end: func(string, *harness.PG) {
			harness.Eventually(t, 2*time.Minute, "there is a dead letter", func(ctx context.Context) string {
				return strings.TrimPrefix(waitingIn(ctx, client, dead), "1")
			})
		},
		program: "sqs",
		environ: func(string) []string {
			return []string{"AWS_ENDPOINT_URL=" + server.URL, "QUEUE_URL=" + *queue}
		},
	})
	if n := waitingIn(t.Context(), client, dead); n != "1" {
		t.Errorf("dead letters: got %s, want 1", n)
	}
}

// waitingIn is how many messages a queue has.
func waitingIn(ctx context.Context, client *sqs.Client, queue *string) string {
	const name = types.QueueAttributeNameApproximateNumberOfMessages
	answer, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: queue,
		AttributeNames: []types.QueueAttributeName{name}})
	if err != nil {
		return err.Error()
	}
	return answer.Attributes[string(name)]
}
