package relay

import (
	"testing"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/internal/message"
	"github.com/cdc-relay/cdc-relay/relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Break it catches: a delivery that grew beyond what the window counts for it. Seen to fail with nine words more in a delivery.
func TestDeliveryIsNotLargerThanItsCost(t *testing.T) {
	if got := unsafe.Sizeof(settle.Delivery{}); got > message.Overhead {
		t.Errorf("size of a delivery: got %d, want at most message.Overhead, %d", got, message.Overhead)
	}
}

// Break it catches: an allocation for each event that was published, where it is counted. Seen to fail with a map of labels made
// for each event.
func TestCountingPublishedEventsAllocatesNothing(t *testing.T) {
	const n = 1000
	m := assemble(options{config: config.Default()}).metrics
	d := &settle.Delivery{Dated: true}
	d.Record = sink.Record{Topic: "t", Owner: d, Result: sink.Published}
	once := func() {
		m.BeginResults()
		for range n {
			m.Acknowledged(&d.Record, d)
		}
		m.EndResults()
	}
	if got := testing.AllocsPerRun(20, once); got > n/100 {
		t.Errorf("allocations for %d published events: got %.0f, want none", n, got)
	}
}
