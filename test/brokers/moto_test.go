package brokers_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// startMoto starts a server, with clients past the proxy.
func startMoto(t *testing.T) (proxy *cutproxy.Plain, queues sqsQueues, topics *sns.Client) {
	t.Helper()
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	harness.AWSLogin(t)
	server := harness.StartMoto(t)
	c, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.BaseEndpoint = &server.URL
	queues = sqsQueues{base: server.URL + "/" + motoAccount + "/", Client: sqsclient.NewFromConfig(c)}
	return cutproxy.StartPlain(t, server.Addr), queues, sns.NewFromConfig(c)
}

const motoAccount = "123456789012"

func (q sqsQueues) arn(topic string) *string {
	return sdk.String("arn:aws:sqs:" + harness.AWSRegion + ":" + motoAccount + ":" + queueName(topic))
}

// The relay is killed and connections are cut. Breaks it catches: an event lost, doubled or out of order between
// Postgres and a FIFO queue that subscribes to a FIFO topic.
func TestSNSHasEachEventOnceInOrder(t *testing.T) {
	harness.Full(t)
	proxy, queues, topics := startMoto(t)
	judge(t, scenario{
		settings: []any{"sink", "sns", "sns.endpoint", "http://" + proxy.Addr, "limits.max_unrecorded", 150},
		begin: func(topic string) {
			queues.make(t, topic)
			made, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: sdk.String(queueName(topic)),
				Attributes: map[string]string{"FifoTopic": "true"}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := topics.Subscribe(t.Context(), &sns.SubscribeInput{TopicArn: made.TopicArn,
				Protocol: sdk.String("sqs"), Endpoint: queues.arn(topic),
				Attributes: map[string]string{"RawMessageDelivery": "true"}}); err != nil {
				t.Fatal(err)
			}
		},
		proxy:   proxy,
		restart: func() {}, // its topics are in its memory
		read:    func(topic string) []message { return queues.read(t, topic) },
		size:    size{transactions: 20, kills: 3, faults: 6}, // moto is slow, and each cut repeats a wave
	})
}
