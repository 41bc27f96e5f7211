package brokers_test

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// motoServices are clients of a server's services, past the proxy.
type motoServices struct {
	proxy  *cutproxy.Plain
	queues sqsQueues
	topics *sns.Client
	buses  *eventbridge.Client
}

func startMoto(t *testing.T) motoServices {
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
	return motoServices{
		proxy:  cutproxy.StartPlain(t, server.Addr),
		queues: sqsQueues{base: server.URL + "/" + motoAccount + "/", Client: sqsclient.NewFromConfig(c)},
		topics: sns.NewFromConfig(c),
		buses:  eventbridge.NewFromConfig(c),
	}
}

const motoAccount = "123456789012"

func (q sqsQueues) arn(topic string) *string {
	return sdk.String("arn:aws:sqs:" + harness.AWSRegion + ":" + motoAccount + ":" + q.name(topic))
}

// forSNS are the settings of a relay to topics behind the proxy, forEventBridge to buses.
func (m motoServices) forSNS() []any {
	return []any{"sink", "sns", "sns.endpoint", "http://" + m.proxy.Addr}
}

func (m motoServices) forEventBridge() []any {
	return []any{"sink", "eventbridge", "eventbridge.endpoint", "http://" + m.proxy.Addr,
		"eventbridge.source", "shop.{aggregate_type}", "eventbridge.detail_type", "{event_type}",
		"eventbridge.timeout", "1m"} // moto is slow
}

// topic makes a FIFO topic and a queue that subscribes to it.
func (m motoServices) topic(t *testing.T, topic string) {
	t.Helper()
	m.queues.make(t, topic)
	made, err := m.topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: sdk.String(queueName(topic)),
		Attributes: map[string]string{"FifoTopic": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.topics.Subscribe(t.Context(), &sns.SubscribeInput{TopicArn: made.TopicArn,
		Protocol: sdk.String("sqs"), Endpoint: m.queues.arn(topic),
		Attributes: map[string]string{"RawMessageDelivery": "true"}}); err != nil {
		t.Fatal(err)
	}
}

// startBuses starts a server with standard queues: moto compares each message of a FIFO queue with all others.
func startBuses(t *testing.T) motoServices {
	t.Helper()
	m := startMoto(t)
	m.queues.standard = true
	return m
}

// bus makes a bus with a rule whose target is a queue.
func (m motoServices) bus(t *testing.T, topic string) {
	t.Helper()
	m.queues.make(t, topic)
	if _, err := m.buses.CreateEventBus(t.Context(), &eventbridge.CreateEventBusInput{Name: &topic}); err != nil {
		t.Fatal(err)
	}
	rule := sdk.String("all")
	if _, err := m.buses.PutRule(t.Context(), &eventbridge.PutRuleInput{Name: rule, EventBusName: &topic,
		EventPattern: sdk.String(`{"detail-type": ["changed"]}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.buses.PutTargets(t.Context(), &eventbridge.PutTargetsInput{Rule: rule, EventBusName: &topic,
		Targets: []types.Target{{Id: rule, Arn: m.queues.arn(topic)}}}); err != nil {
		t.Fatal(err)
	}
}

// delivered are the events that the rule of a bus has put into its queue.
func (m motoServices) delivered(t *testing.T, topic string) (found []message) {
	t.Helper()
	for _, raw := range m.queues.read(t, topic) {
		var event struct {
			Source string `json:"source"`
			Detail struct {
				Metadata map[string]string `json:"metadata"`
				Data     json.RawMessage   `json:"data"`
			} `json:"detail"`
		}
		if err := json.Unmarshal(raw.payload, &event); err != nil {
			t.Fatalf("read %s: %v", raw.payload, err)
		}
		if _, kind, _ := strings.Cut(event.Source, "."); !strings.HasSuffix(topic, kind) {
			t.Errorf("bus %s: got an event of source %q", topic, event.Source)
		}
		about := event.Detail.Metadata
		found = append(found, message{id: about["id"], key: about["x-outbox-key"], payload: event.Detail.Data,
			replayed: about[replayHeader] == "1"})
	}
	return found
}

// whileAway calls make while the relay cannot reach the server: what comes to a topic without a subscription, or to a
// bus without a rule, is dropped.
func (m motoServices) whileAway(t *testing.T, make func(*testing.T, string)) func(topic string) {
	return func(topic string) {
		end := m.proxy.Outage()
		defer end()
		make(t, topic)
	}
}

// The relay is killed and connections are cut. Breaks it catches: an event lost, doubled or out of order between
// Postgres and a FIFO queue that subscribes to a FIFO topic.
func TestSNSHasEachEventOnceInOrder(t *testing.T) {
	harness.Full(t)
	m := startMoto(t)
	judge(t, scenario{
		settings: append(m.forSNS(), "limits.max_unrecorded", 150),
		begin:    func(topic string) { m.topic(t, topic) },
		proxy:    m.proxy,
		restart:  func() {}, // its topics are in its memory
		read:     func(topic string) []message { return m.queues.read(t, topic) },
		size:     size{transactions: 20, kills: 3, faults: 6}, // moto is slow, and each cut repeats a wave
	})
}

// The relay is killed and connections are cut. Breaks it catches: an event that does not come through a rule, one that
// comes twice and was neither counted nor in flight when the relay was killed, and one that is put on the bus before an
// earlier one of its key.
func TestEventBridgeHasEachEventInOrder(t *testing.T) {
	harness.Full(t)
	m := startBuses(t)
	const kills, unrecorded = 3, 25 // so that much less than everything may come twice
	judge(t, scenario{
		settings:   append(m.forEventBridge(), "limits.max_unrecorded", unrecorded),
		begin:      func(topic string) { m.bus(t, topic) },
		proxy:      m.proxy,
		restart:    func() {}, // its buses are in its memory
		read:       func(topic string) []message { return m.delivered(t, topic) },
		counts:     true,
		duplicates: func() int { return kills * unrecorded },
		size:       size{transactions: 20, kills: kills, faults: 6},
	})
}

// One topic is missing at first, and one event is too large. Breaks it catches: a topic in trouble that holds up
// another; parked events that come out of order, or not; a dead letter that cannot be sent again.
func TestSNSParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	m := startMoto(t)
	judgeTrouble(t, troubled{
		settings: m.forSNS(),
		begin:    func(order, _ string) { m.topic(t, order) },
		mend:     m.whileAway(t, m.topic),
		read:     func(topic string) []message { return m.queues.read(t, topic) },
	})
}

// The same with a bus. Breaks it catches: the same.
func TestEventBridgeParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	m := startBuses(t)
	judgeTrouble(t, troubled{
		settings: m.forEventBridge(),
		begin:    func(order, _ string) { m.bus(t, order) },
		mend:     m.whileAway(t, m.bus),
		read:     func(topic string) []message { return m.delivered(t, topic) },
	})
}
