package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Breaks it catches: a consumer of the file that becomes another one in one line, and one that config show prints in a
// way that no file takes. Seen to fail with binding keys printed without quotes.
func TestConsumersReadTheSameInEachForm(t *testing.T) {
	const file = `rabbitmq:
  consumers:
    notifications:
      bind: ["ticket.*", "#"]
      retry: [1m, 5m, 15m]
    metrics: {bind: "${KEY}", exchanges: [tickets], retry: []}
    audit:
    mails: {single_active: true}
message: {topic: tickets}
`
	want := map[string]RabbitMQConsumer{
		"notifications": {Bind: []string{"ticket.*", "#"}, Retry: defaultConsumer().Retry},
		"metrics":       {Bind: []string{"a.b", "c"}, Retry: []Duration{}, Exchanges: []string{"tickets"}},
		"audit":         defaultConsumer(),
		"mails":         {Bind: []string{"#"}, Retry: defaultConsumer().Retry, SingleActive: true},
	}
	cfg, err := Load(Input{File: "relay.yaml", Text: []byte(file), Environ: []string{"KEY=a.b,c"}})
	if diff := cmp.Diff(want, cfg.RabbitMQ.Consumers); err != nil || diff != "" {
		t.Fatalf("the file: %v (-want +got)\n%s", err, diff)
	}
	for _, k := range cfg.Shown() {
		if k.Key != consumersKey {
			continue
		}
		again, err := Load(Input{Flags: []Setting{{"--set", k.Key, k.Value}, {"--set", "message.topic", "tickets"}}})
		if diff := cmp.Diff(want, again.RabbitMQ.Consumers); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", k.Value, err, diff)
		}
	}
}

// Breaks it catches: a mistake below a consumer that is not told with its line and the key that was meant, and one that
// hides the others. Seen to fail with the unknown keys let through.
func TestConsumersMistakesAreAllTold(t *testing.T) {
	const file = `rabbitmq:
  consumers:
    a: {bindings: [x]}
    b: {bind: [x], bind: [y]}
    c: 5
    c: {}
`
	_, err := Load(Input{File: "relay.yaml", Text: []byte(file)})
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"rabbitmq.consumers.a.bindings (relay.yaml:3)", "the nearest known key is bind",
		"rabbitmq.consumers.b.bind (relay.yaml:4)", "c: found a single value", `"c" is set twice`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Breaks it catches: a consumer that the relay never sends to. Seen to fail with the relation left out.
func TestConsumersOfExchangesThatNothingIsSentTo(t *testing.T) {
	for consumers, refused := range map[string]map[string]bool{
		"{a: {}}":                          {"tickets": false, "x.{aggregate_type}": true},
		"{a: {exchanges: [tickets]}}":      {"tickets": false, "x.{aggregate_type}": true, "{aggregate_type}s": false},
		"{a: {exchanges: [x.t, tickets]}}": {"tickets": false, "x.{aggregate_type}": false, "orders": true},
	} {
		for topic, want := range refused {
			_, err := Load(Input{Flags: []Setting{{"--set", consumersKey, consumers}, {"--set", "sink", SinkRabbitMQ},
				{"--set", "message.topic", topic}}})
			if got := err != nil && strings.Contains(err.Error(), "exchanges for each consumer"); got != want {
				t.Errorf("%s with message.topic %s: refused %t, want %t: %v", consumers, topic, got, want, err)
			}
		}
	}
}
