package aws_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/aws"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// queueBed is a server with a proxy before it, and a client past the proxy.
type queueBed struct {
	server *harness.ElasticMQ
	proxy  *cutproxy.Plain
	client *client.Client
}

func newQueueBed(t *testing.T) *queueBed {
	t.Helper()
	harness.AWSLogin(t)
	b := &queueBed{server: harness.StartElasticMQ(t)}
	b.proxy = cutproxy.StartPlain(t, b.server.Addr)
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.client = client.NewFromConfig(c, func(o *client.Options) { o.BaseEndpoint = &b.server.URL })
	return b
}

// create makes the queue of a topic.
func (b *queueBed) create(t *testing.T, topic string) {
	t.Helper()
	attributes := map[string]string{}
	if strings.HasSuffix(topic, ".fifo") {
		attributes["FifoQueue"] = "true"
	}
	input := &client.CreateQueueInput{QueueName: &topic, Attributes: attributes}
	if _, err := b.client.CreateQueue(t.Context(), input); err != nil {
		t.Fatal(err)
	}
}

func (b *queueBed) url(topic string) *string {
	return sdk.String(b.server.URL + "/000000000000/" + topic)
}

// topic makes a queue.
func (b *queueBed) topic(t *testing.T, suffix string) string {
	t.Helper()
	name := harness.Unique(t, "topic") + suffix
	b.create(t, name)
	return name
}

func (b *queueBed) config() aws.SQSConfig {
	return aws.SQSConfig{Endpoint: "http://" + b.proxy.Addr, MaxBytes: 2 << 20,
		Headers: [4]string{"id", "event_type", "aggregate_type", "created_at"}}
}

// poisonous is more bytes than the server takes.
const poisonous = 1<<20 + 1

func newSQS(t testing.TB, c aws.SQSConfig) *aws.Driver {
	t.Helper()
	d, err := aws.NewSQS(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // of a test that is skipped
	return d
}

// read takes what is in the topic's queue, in the order in which it was sent. That is a FIFO queue's own. A standard
// queue promises none, and hides the messages of an answer that its client asked for again, so those come last.
func (b *queueBed) read(t *testing.T, topic string) (found []sinktest.Message) {
	t.Helper()
	if !strings.HasSuffix(topic, ".fifo") {
		defer func() {
			slices.SortStableFunc(found, func(a, b sinktest.Message) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
			for i := range found {
				found[i].Offset = int64(i)
			}
		}()
	}
	var wait int32 // seconds
	for {
		answer, err := b.client.ReceiveMessage(t.Context(), &client.ReceiveMessageInput{QueueUrl: b.url(topic),
			MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}, WaitTimeSeconds: wait,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameSentTimestamp}})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Messages) == 0 {
			if b.empty(t, topic) {
				return found
			}
			wait = 1
			continue
		}
		var handled []types.DeleteMessageBatchRequestEntry
		for _, m := range answer.Messages {
			found = append(found, b.message(t, topic, m, len(found)))
			handled = append(handled, types.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := b.client.DeleteMessageBatch(t.Context(), &client.DeleteMessageBatchInput{QueueUrl: b.url(topic),
			Entries: handled}); err != nil {
			t.Fatal(err)
		}
	}
}

// empty says whether the topic's queue has no message, also none that is hidden, as those of a lost answer are for half
// a minute.
func (b *queueBed) empty(t *testing.T, topic string) bool {
	t.Helper()
	answer, err := b.client.GetQueueAttributes(t.Context(), &client.GetQueueAttributesInput{QueueUrl: b.url(topic),
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed} {
		if n, known := answer.Attributes[string(name)]; !known {
			t.Fatalf("the server does not say %s: %v", name, answer.Attributes)
		} else if n != "0" {
			return false
		}
	}
	return true
}

// message converts a received message.
func (b *queueBed) message(t *testing.T, topic string, m types.Message, n int) sinktest.Message {
	t.Helper()
	sent, err := strconv.ParseInt(m.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64)
	if err != nil {
		t.Errorf("message %s: when it was sent: %v", *m.Body, err)
	}
	found := sinktest.Message{Topic: topic, Offset: int64(n), Value: []byte(*m.Body), Timestamp: sent}
	if len(m.MessageAttributes) > 10 {
		t.Errorf("message %s has %d attributes, want ten at most", *m.Body, len(m.MessageAttributes))
	}
	for name, a := range m.MessageAttributes {
		value := a.BinaryValue
		if a.StringValue != nil {
			value = []byte(*a.StringValue)
		}
		switch name {
		case "x-outbox-key":
			found.Key = value
		case "x-outbox-tombstone":
			found.Value = nil
		case "x-outbox-encoding":
			if string(value) == "empty" {
				found.Value = []byte{}
				break
			}
			body, err := base64.StdEncoding.DecodeString(*m.Body)
			if err != nil {
				t.Errorf("body %q: %v", *m.Body, err)
			}
			found.Value = body
		case "x-outbox-headers":
			var rest map[string]json.RawMessage
			if err := json.Unmarshal(value, &rest); err != nil {
				t.Errorf("headers %s: %v", value, err)
			}
			for name, value := range rest {
				found.Headers.Add(name, header(t, value))
			}
		default:
			found.Headers.Add(name, value)
		}
	}
	return found
}

// header is the value of a header in the JSON attribute: null, text, or an object of bytes in base64.
func header(t *testing.T, value json.RawMessage) []byte {
	t.Helper()
	var text *string
	if json.Unmarshal(value, &text) == nil {
		if text == nil {
			return nil
		}
		return []byte(*text)
	}
	var binary struct{ Base64 []byte }
	if err := json.Unmarshal(value, &binary); err != nil {
		t.Errorf("header %s: %v", value, err)
	}
	return binary.Base64
}

// TestOnElasticMQ has one server for its parts, as a JVM takes long to start.
func TestOnElasticMQ(t *testing.T) {
	harness.Full(t)
	b := newQueueBed(t)
	t.Run("Conformance", b.conformance)
	t.Run("QueuesAreMadeWhereThatIsWanted", b.created) // before the cuts: the last may come late
	t.Run("CutsLoseAndReorderNothing", b.cuts)
}

// conformance runs the suite of all drivers on a server that speaks SQS, behind a proxy that cuts. Breaks it catches:
// see there.
func (b *queueBed) conformance(t *testing.T) {
	for suffix, c := range map[string]aws.SQSConfig{".fifo": b.config(), "": b.config()} {
		name := "FIFO"
		if suffix == "" {
			name, c.Standard = "Standard", true
		}
		t.Run(name, func(t *testing.T) {
			if suffix == "" && harness.Count(t, "services of AWS") == 0 {
				t.Skip("at night") // cut connections have both kinds of queues
			}
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture { return b.fixture(t, c, suffix) })
		})
	}
}

func (b *queueBed) fixture(t *testing.T, c aws.SQSConfig, suffix string) sinktest.Fixture {
	return sinktest.Fixture{
		Driver:       newSQS(t, c),
		Deduplicates: suffix != "",
		Topic:        func(t *testing.T, _ int) string { return b.topic(t, suffix) },
		Read:         b.read,
		Lacks:        sinktest.Lacks{Timestamps: true, HeaderOrder: true, TopicOrder: true},
		Poison: func(topic string, key []byte) *sink.Record {
			return &sink.Record{Topic: topic, Key: key, Value: []byte(strings.Repeat("x", poisonous)), Cost: poisonous}
		},
		LoseAnswers: b.proxy.LoseAnswers,
		Outage:      b.proxy.Outage,
		Ruins: map[string]func(*testing.T, string) func(){"Deleted": func(t *testing.T, topic string) func() {
			if _, err := b.client.DeleteQueue(t.Context(), &client.DeleteQueueInput{QueueUrl: b.url(topic)}); err != nil {
				t.Fatal(err)
			}
			return func() { b.create(t, topic) }
		}},
		MissingTopic: func(t *testing.T) (string, func()) {
			name := harness.Unique(t, "missing") + suffix
			return name, func() { b.create(t, name) }
		},
	}
}

// Connections break before, in and after requests. Breaks it catches: an event lost or out of order; one that a FIFO
// queue has twice, as with a deduplication id of each attempt; duplicates of a standard queue that were not counted.
func (b *queueBed) cuts(t *testing.T) {
	for _, suffix := range []string{".fifo", ""} {
		topic := b.topic(t, suffix)
		c := b.config()
		c.Standard = suffix == ""
		d := newSQS(t, c)
		f := sinktest.NewFlow(t, d)
		const n = 3000
		done, before := make(chan struct{}), b.proxy.Cuts()
		go func() {
			defer close(done)
			f.Send(sinktest.Events(topic, 0, n))
		}()
		cutproxy.Disturb(b.proxy, f.Progress, done, func() {})
		duplicates := sinktest.WantFirstsInOrder(t, b.read(t, topic), n)
		cuts := b.proxy.Cuts() - before
		t.Logf("%q: %d connections were cut, %d duplicates, %d possible", suffix, cuts, duplicates, d.PossibleDuplicates())
		if allowed := int(d.PossibleDuplicates()); cuts == 0 || duplicates > allowed || suffix != "" && allowed > 0 {
			t.Errorf("%q: got %d cuts and %d duplicates, %d possible", suffix, cuts, duplicates, allowed)
		}
	}
}

// Breaks it catches: a queue that is missing and made without being asked, or not when asked; one for standard messages
// where the name says FIFO.
func (b *queueBed) created(t *testing.T) {
	topic := "orders." + harness.Unique(t, "created")
	name := strings.ReplaceAll(topic, ".", "-") + ".fifo"
	c := b.config()
	b.paste(t, newSQS(t, c), "pasted."+topic)
	c.Create = true
	made := ""
	c.Created = func(queue string) { made = queue }
	d := newSQS(t, c)
	sinktest.NewFlow(t, d).Send(sinktest.Events(topic, 0, 10))
	sinktest.WantFirstsInOrder(t, b.read(t, name), 10)
	if made != "SQS queue "+name {
		t.Errorf("told of the queue %q, want %s", made, name)
	}
	text, _, err := d.Examine(context.Background(), topic)
	if err != nil || !strings.Contains(text, name+" in us-east-1 is there") {
		t.Errorf("examine: got %q, %v", text, err)
	}
}

// paste does what the command that Examine prints for a missing queue would do, and examines the queue. The tool aws
// itself is not here. Break it catches: a name or an attribute that the service refuses, or that makes another queue.
func (b *queueBed) paste(t *testing.T, d *aws.Driver, topic string) {
	t.Helper()
	_, _, err := d.Examine(t.Context(), topic)
	printed := regexp.MustCompile(
		`aws sqs create-queue --queue-name (\S+)(?: --attributes ([^\s)]+))? --region us-east-1\)`)
	command := printed.FindStringSubmatch(fmt.Sprint(err))
	if command == nil {
		t.Fatalf("examine without the queue: got %v, want how to create it", err)
	}
	input := &client.CreateQueueInput{QueueName: &command[1], Attributes: map[string]string{}}
	for attribute := range strings.SplitSeq(command[2], ",") {
		if name, value, is := strings.Cut(attribute, "="); is {
			input.Attributes[name] = value
		}
	}
	if _, err := b.client.CreateQueue(t.Context(), input); err != nil {
		t.Errorf("%s: %v", command[0], err)
	}
	if text, risky, err := d.Examine(t.Context(), topic); err != nil || risky {
		t.Errorf("examine after %s: got %q, risky %v, %v", command[0], text, risky, err)
	}
}
