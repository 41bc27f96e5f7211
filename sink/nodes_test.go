package sink_test

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: a second node for a topic, which would not know what the first has out; a number under which
// another lies. Seen to fail with the table not looked at, and with numbers one too high.
func TestEachTopicHasOneNodeUnderItsNumber(t *testing.T) {
	var nodes sink.Nodes[string]
	of := func(topic string) (string, int32) {
		return nodes.Of(topic, func() string { return "node of " + topic })
	}
	topics := []string{"orders", "payments", "orders", "users", "payments"}
	for i, want := range []int32{0, 1, 0, 2, 1} {
		node, number := of(topics[i])
		if number != want || node != "node of "+topics[i] {
			t.Errorf("look %d at %s: %q under %d, want its own under %d", i, topics[i], node, number, want)
		}
		if at := nodes.At(number); at != node {
			t.Errorf("under %d lies %q, want %q", number, at, node)
		}
	}
	if want := []string{"node of orders", "node of payments", "node of users"}; !slices.Equal(nodes.All(), want) {
		t.Errorf("all: %q, want %q", nodes.All(), want)
	}
}
