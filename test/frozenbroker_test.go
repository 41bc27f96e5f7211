package test

import (
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A broker is frozen under load: its connections stay open and answer nothing, so each request in flight keeps its
// bytes until it is given up and sent again. Breaks it catches: memory that grows with the outage instead of with the
// limits; events lost or doubled when it goes on. docs/sizing.md has the figures. Seen to fail with a window of 256
// MiB.
func TestFrozenBrokerTakesBoundedMemory(t *testing.T) {
	harness.Full(t)
	s := startScenario(t, harness.Postgres(t), harness.NewOwnKafka(t, harness.KafkaConfig{}))
	load := s.load(t, harness.Workload{Rate: 3000, PayloadBytes: 2000})
	load.WaitCommitted(t, 5000, time.Minute)
	before := s.relay.PeakRSS(t)
	node := s.kafka.Nodes[0]
	node.Freeze()
	frozen := time.NewTimer(time.Duration(harness.Count(t, "broker frozen seconds")) * time.Second)
	<-frozen.C
	during, held := s.relay.PeakRSS(t), s.relay.Metric(t, "outbox_in_flight_bytes")
	node.Thaw()
	load.Stop(t)
	s.settled(t)
	s.judge(t, 0)
	const most = 80 << 20 // the window's 32 MiB, and what docs/sizing.md says is beside them
	peak := s.relay.PeakRSS(t)
	t.Logf("peak memory: %d MiB before, %d MiB while it was frozen, %d MiB in the end; %.1f MiB in the window", before>>20,
		during>>20, peak>>20, held/(1<<20))
	if peak > most {
		t.Errorf("peak memory: got %d MiB, want at most %d MiB", peak>>20, most>>20)
	}
}
