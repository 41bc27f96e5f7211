package aws_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	client "github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	queue "github.com/aws/aws-sdk-go-v2/service/sqs"
	of "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/aws"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// busBed is a server with a proxy before it, and clients past the proxy.
type busBed struct {
	proxy  *cutproxy.Plain
	buses  *client.Client
	queues *queue.Client
}

func newBusBed(t *testing.T) *busBed {
	t.Helper()
	harness.AWSLogin(t)
	server := harness.StartMoto(t)
	c, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.BaseEndpoint = &server.URL
	return &busBed{cutproxy.StartPlain(t, server.Addr), client.NewFromConfig(c), queue.NewFromConfig(c)}
}

// event is one as a rule hands it to a queue.
type event struct {
	Source     string `json:"source"`
	DetailType string `json:"detail-type"`
	Detail     struct {
		Metadata map[string]any `json:"metadata"`
		Data     any            `json:"data"`
	} `json:"detail"`
}

// bus makes a bus with a rule that sends everything of a source to a queue.
func (b *busBed) bus(t *testing.T) (name string, queueURL *string) {
	t.Helper()
	name = harness.Unique(t, "bus")
	if _, err := b.buses.CreateEventBus(t.Context(), &client.CreateEventBusInput{Name: &name}); err != nil {
		t.Fatal(err)
	}
	q, err := b.queues.CreateQueue(t.Context(), &queue.CreateQueueInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.buses.PutRule(t.Context(), &client.PutRuleInput{Name: &name, EventBusName: &name,
		EventPattern: sdk.String(`{"source": ["shop.order"]}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err = b.buses.PutTargets(t.Context(), &client.PutTargetsInput{Rule: &name, EventBusName: &name,
		Targets: []types.Target{{
			Id: sdk.String("1"), Arn: sdk.String("arn:aws:sqs:us-east-1:123456789012:" + name),
		}}}); err != nil {
		t.Fatal(err)
	}
	return name, q.QueueUrl
}

func (b *busBed) read(t *testing.T, url *string) (found []event) {
	t.Helper()
	for {
		answer, err := b.queues.ReceiveMessage(t.Context(),
			&queue.ReceiveMessageInput{QueueUrl: url, MaxNumberOfMessages: 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Messages) == 0 {
			return found
		}
		var handled []of.DeleteMessageBatchRequestEntry
		for _, m := range answer.Messages {
			var e event
			if err := json.Unmarshal([]byte(*m.Body), &e); err != nil {
				t.Fatalf("%s: %v", *m.Body, err)
			}
			found = append(found, e)
			handled = append(handled, of.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle})
		}
		if _, err := b.queues.DeleteMessageBatch(t.Context(), &queue.DeleteMessageBatchInput{QueueUrl: url,
			Entries: handled}); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *busBed) driver(t *testing.T) *aws.Driver {
	t.Helper()
	return newEventBridge(t, "http://"+b.proxy.Addr)
}

func newEventBridge(t *testing.T, endpoint string) *aws.Driver {
	t.Helper()
	d, err := aws.NewEventBridge(t.Context(), aws.EventBridgeConfig{Endpoint: endpoint,
		Source: "shop.{aggregate_type}", DetailType: "{event_type}",
		Headers: [4]string{"id", "event_type", "aggregate_type", "created_at"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestEventBridgeOnMoto has one server for its parts.
func TestEventBridgeOnMoto(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	b := newBusBed(t)
	t.Run("CutsLoseNothing", b.cuts)
	t.Run("EventsAreWhatRulesMatch", b.shape)
	t.Run("AMissingBusIsItsOwnTrouble", b.missing)
}

func busEvents(topic string, n int) []*sink.Record {
	records := sinktest.Events(topic, 0, n)
	for i, r := range records {
		r.Value = []byte(`{"n": "` + string(r.Value) + `"}`)
		r.Headers.Add("aggregate_type", []byte("order"))
		if i%2 == 0 {
			r.Headers.Add("event_type", []byte("placed"))
		}
	}
	return records
}

// Breaks it catches: an event lost on its way to a rule's target when connections break, and duplicates that were not
// counted.
func (b *busBed) cuts(t *testing.T) {
	const n = 100
	bus, url := b.bus(t)
	d := b.driver(t)
	f := sinktest.NewFlow(t, d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Send(busEvents(bus, n))
	}()
	cutproxy.Disturb(b.proxy, f.Progress, done, func() {})
	seen, duplicates := map[any]bool{}, 0
	for _, e := range b.read(t, url) {
		id := e.Detail.Metadata["id"]
		if seen[id] {
			duplicates++
		}
		seen[id] = true
	}
	t.Logf("%d cuts, %d duplicates, %d possible", b.proxy.Cuts(), duplicates, d.PossibleDuplicates())
	if len(seen) != n || duplicates > int(d.PossibleDuplicates()) {
		t.Errorf("got %d of %d events, %d duplicates of %d possible", len(seen), n, duplicates, d.PossibleDuplicates())
	}
}

// Breaks it catches: source, detail-type, payload or metadata that are not where rules look for them.
func (b *busBed) shape(t *testing.T) {
	bus, url := b.bus(t)
	d := b.driver(t)
	records := busEvents(bus, 2)
	records[1].Value = nil
	sinktest.NewFlow(t, d).Send(records)
	found := b.read(t, url)
	if len(found) != 2 {
		t.Fatalf("got %d events, want two", len(found))
	}
	for _, e := range found {
		kind, tombstone := "event", any("true")
		data, _ := e.Detail.Data.(map[string]any)
		if e.Detail.Metadata["id"] == "0" {
			kind, tombstone = "placed", nil
			if data["n"] != "000000000" {
				t.Errorf("got data %v", e.Detail.Data)
			}
		} else if e.Detail.Data != nil {
			t.Errorf("got data %v of a payload that is null", e.Detail.Data)
		}
		if e.Source != "shop.order" || e.DetailType != kind || e.Detail.Metadata["x-outbox-tombstone"] != tombstone ||
			!strings.HasPrefix(e.Detail.Metadata["x-outbox-key"].(string), "key-") {
			t.Errorf("got %+v", e)
		}
	}
}

// Breaks it catches: a bus that is not there, which EventBridge takes events for all the same, and a text that does not
// say what to do.
func (b *busBed) missing(t *testing.T) {
	d := b.driver(t)
	batch := &sink.Batch{Topic: "no.such", Records: busEvents("no.such", 3)}
	d.Produce(t.Context(), d.Node("no.such", 0), []*sink.Batch{batch})
	const want = "aws events create-event-bus --name no.such"
	if o := batch.Outcome; o.Verdict != sink.NotWritten || o.Trouble != sink.TopicTrouble ||
		!strings.Contains(o.Err.Error(), want) {
		t.Errorf("got %+v, want the topic's trouble and %s", o, want)
	}
	if _, _, err := d.Examine(t.Context(), "no.such"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("examine: got %v, want %s", err, want)
	}
	name := want[strings.LastIndex(want, " ")+1:] // as the command would; the tool aws itself is not here
	if _, err := b.buses.CreateEventBus(t.Context(), &client.CreateEventBusInput{Name: &name}); err != nil {
		t.Errorf("%s: %v", want, err)
	}
	if text, _, err := d.Examine(t.Context(), "no.such"); err != nil {
		t.Errorf("examine after %s: got %q, %v", want, text, err)
	}
}
