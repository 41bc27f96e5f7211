package sink_test

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// No lane of the topic is held. Break it catches: a record that costs an allocation on its way through the engine, be
// it to ask whether its lane is held. Seen to fail with a name made of topic and key for each record.
func TestEngineAllocatesNothingPerRecord(t *testing.T) {
	const n = 1000
	e := sink.New(swallow{partitions: 12, changed: make(chan struct{})}, sink.Config{})
	defer func() { _ = e.Close(t.Context()) }()
	records := make([]*sink.Record, n)
	for i := range records {
		records[i] = &sink.Record{Topic: "topic", Key: fmt.Appendf(nil, "%08d", i), Value: make([]byte, 8), Cost: 300}
	}
	e.Hold(sink.Lane{Topic: "another topic", Key: []byte("k")})
	results := make([]*sink.Record, 0, n)
	once := func() {
		if _, err := e.Submit(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		for results = results[:0]; len(results) < n; {
			var err error
			if results, err = e.Results(t.Context(), results); err != nil {
				t.Fatal(err)
			}
		}
		e.Settled(results)
	}
	for range 10 { // the engine's own memory grows to its size
		once()
	}
	// What a request costs is shared by its records; how many they are is a matter of chance.
	if got := testing.AllocsPerRun(50, once) / n; got > 0.1 {
		t.Errorf("allocations per record: got %.2f, want 0 and a share of those per request", got)
	}
}
