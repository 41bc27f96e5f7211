package aws_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	client "github.com/aws/aws-sdk-go-v2/service/sns"
	queue "github.com/aws/aws-sdk-go-v2/service/sqs"
	of "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/aws"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// topicBed is a server with a proxy before it, and clients past the proxy.
type topicBed struct {
	server *harness.Moto
	proxy  *cutproxy.Plain
	topics *client.Client
	queues *queue.Client
}

func newTopicBed(t *testing.T) *topicBed {
	t.Helper()
	harness.AWSLogin(t)
	b := &topicBed{server: harness.StartMoto(t)}
	b.proxy = cutproxy.StartPlain(t, b.server.Addr)
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.BaseEndpoint = &b.server.URL
	b.topics, b.queues = client.NewFromConfig(c), queue.NewFromConfig(c)
	return b
}

// topic makes a topic with a queue that subscribes to it.
func (b *topicBed) topic(t *testing.T, suffix string) (name string, queueURL *string) {
	t.Helper()
	name = harness.Unique(t, "topic") + suffix
	ofTopic, ofQueue := map[string]string{}, map[string]string{}
	if suffix != "" {
		ofTopic["FifoTopic"], ofQueue["FifoQueue"] = "true", "true"
	}
	made, err := b.topics.CreateTopic(t.Context(), &client.CreateTopicInput{Name: &name, Attributes: ofTopic})
	if err != nil {
		t.Fatal(err)
	}
	q, err := b.queues.CreateQueue(t.Context(), &queue.CreateQueueInput{QueueName: &name, Attributes: ofQueue})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.topics.Subscribe(t.Context(), &client.SubscribeInput{TopicArn: made.TopicArn, Protocol: sdk.String("sqs"),
		Endpoint:   sdk.String("arn:aws:sqs:us-east-1:123456789012:" + name),
		Attributes: map[string]string{"RawMessageDelivery": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	return name, q.QueueUrl
}

func (b *topicBed) read(t *testing.T, url *string) (found []sinktest.Message) {
	t.Helper()
	for {
		answer, err := b.queues.ReceiveMessage(t.Context(), &queue.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10,
			MessageAttributeNames: []string{"All"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Messages) == 0 {
			return found
		}
		var handled []of.DeleteMessageBatchRequestEntry
		for _, m := range answer.Messages {
			key := sdk.ToString(m.MessageAttributes["x-outbox-key"].StringValue)
			one := sinktest.Message{Key: []byte(key), Value: []byte(*m.Body)}
			one.Headers.Add("id", []byte(sdk.ToString(m.MessageAttributes["id"].StringValue)))
			found = append(found, one)
			handled = append(handled, of.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := b.queues.DeleteMessageBatch(t.Context(), &queue.DeleteMessageBatchInput{QueueUrl: url,
			Entries: handled}); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *topicBed) driver(t *testing.T, standard bool) *aws.Driver {
	t.Helper()
	d, err := aws.NewSNS(t.Context(), aws.SNSConfig{Endpoint: "http://" + b.proxy.Addr, Standard: standard,
		Headers: [4]string{"id", "event_type", "aggregate_type", "created_at"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestSNSOnMoto has one server for its parts.
func TestSNSOnMoto(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	b := newTopicBed(t)
	t.Run("CutsLoseAndReorderNothing", b.cuts)
	t.Run("AMissingTopicIsItsOwnTrouble", b.missing)
	t.Run("ExamineFindsTheAccount", b.examined)
}

// Breaks it catches: an event lost or out of order on its way to a subscribed queue when connections break, and
// duplicates that were not counted.
func (b *topicBed) cuts(t *testing.T) {
	const n = 100
	for _, suffix := range []string{".fifo", ""} {
		topic, url := b.topic(t, suffix)
		d := b.driver(t, suffix == "")
		f := sinktest.NewFlow(t, d)
		done, before := make(chan struct{}), b.proxy.Cuts()
		go func() {
			defer close(done)
			f.Send(sinktest.Events(topic, 0, n))
		}()
		cutproxy.Disturb(b.proxy, f.Progress, done, func() {})
		found := b.read(t, url)
		duplicates := sinktest.WantFirstsInOrder(t, found, n)
		t.Logf("%q: %d cuts, %d duplicates, %d possible", suffix, b.proxy.Cuts()-before, duplicates, d.PossibleDuplicates())
		if suffix == "" && duplicates > int(d.PossibleDuplicates()) || suffix != "" && duplicates > 0 {
			t.Errorf("%q: got %d duplicates, %d possible", suffix, duplicates, d.PossibleDuplicates())
		}
		if id, _ := found[0].Headers.Get("id"); len(id) == 0 {
			t.Error("the subscribed queue does not get the attribute id")
		}
	}
}

// Breaks it catches: a topic that is not there taken for trouble of all topics, or without what to do.
func (b *topicBed) missing(t *testing.T) {
	d := b.driver(t, false)
	batch := &sink.Batch{Topic: "no.such", Records: sinktest.Events("no.such", 0, 3)}
	d.Produce(t.Context(), d.Node("no.such", 0), []*sink.Batch{batch})
	const want = "aws sns create-topic --name no-such.fifo --attributes FifoTopic=true"
	if o := batch.Outcome; o.Verdict != sink.NotWritten || o.Trouble != sink.TopicTrouble ||
		!strings.Contains(o.Err.Error(), want) {
		t.Errorf("got %+v, want the topic's trouble and %s", o, want)
	}
	b.paste(t, d, "pasted.order")
}

// paste does what the command that Examine prints for a missing topic would do. The tool aws itself is not here. Break
// it catches: a name or an attribute that the service refuses, or that makes another topic.
func (b *topicBed) paste(t *testing.T, d *aws.Driver, topic string) {
	t.Helper()
	_, _, err := d.Examine(t.Context(), topic)
	command := regexp.MustCompile(`aws sns create-topic --name (\S+)(?: --attributes ([^\s)]+))? --region us-east-1\)`).
		FindStringSubmatch(fmt.Sprint(err))
	if command == nil {
		t.Fatalf("examine without the topic: got %v, want how to create it", err)
	}
	input := &client.CreateTopicInput{Name: &command[1], Attributes: map[string]string{}}
	for attribute := range strings.SplitSeq(command[2], ",") {
		if name, value, is := strings.Cut(attribute, "="); is {
			input.Attributes[name] = value
		}
	}
	if _, err := b.topics.CreateTopic(t.Context(), input); err != nil {
		t.Errorf("%s: %v", command[0], err)
	}
	if text, _, err := d.Examine(t.Context(), topic); err != nil {
		t.Errorf("examine after %s: got %q, %v", command[0], text, err)
	}
}

// Breaks it catches: an account that is not found.
func (b *topicBed) examined(t *testing.T) {
	if text, _, err := b.driver(t, false).Examine(t.Context(), ""); err != nil ||
		!strings.Contains(text, "account 123456789012") {
		t.Errorf("without a topic: got %q, %v", text, err)
	}
}

// moto counts no subscriptions: a server of the test answers. Breaks it catches: a check that calls a topic good which
// drops everything, or one bad whose subscriptions are not told.
func TestExamineWarnsOfATopicWithoutSubscriptions(t *testing.T) {
	harness.AWSLogin(t)
	for entry, want := range map[string]struct {
		text  string
		risky bool
	}{
		"<entry><key>SubscriptionsConfirmed</key><value>0</value></entry>": {"no one has subscribed", true},
		"<entry><key>SubscriptionsConfirmed</key><value>2</value></entry>": {"subscriptions: 2", false},
		"": {"is not known", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/xml")
			_, _ = io.WriteString(w, `<GetTopicAttributesResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">
				<GetTopicAttributesResult><Attributes>`+entry+`</Attributes></GetTopicAttributesResult>
				</GetTopicAttributesResponse>`)
		}))
		t.Cleanup(server.Close)
		d, err := aws.NewSNS(t.Context(), aws.SNSConfig{Endpoint: server.URL, Account: "123456789012"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		text, risky, err := d.Examine(t.Context(), "orders")
		if err != nil || risky != want.risky || !strings.Contains(text, want.text) {
			t.Errorf("%q: got %q, risky %t, %v", entry, text, risky, err)
		}
	}
}
