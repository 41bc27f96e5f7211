package meter

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Break it catches: an allocation for each event that was published, where it is counted. Seen to fail with a map of
// labels made for each event.
func TestCountingPublishedEventsAllocatesNothing(t *testing.T) {
	const n = 1000
	m, _, _ := fresh()
	rec := &sink.Record{Topic: "t", Result: sink.Published}
	received, created := time.Duration(0), int64(0)
	once := func() {
		m.Outcomes.BeginResults()
		for range n {
			m.Outcomes.Acknowledged(rec, received, created, true)
			received, created = received+1, created+1
		}
		m.Outcomes.EndResults()
	}
	if got := testing.AllocsPerRun(20, once); got > n/100 {
		t.Errorf("allocations for %d published events: got %.0f, want none", n, got)
	}
}

// Break it catches: a series for each topic that rows name. Seen to fail without the bound.
func TestTopicsHaveABoundedNumberOfSeries(t *testing.T) {
	m, _, _ := fresh()
	m.Outcomes.BeginResults()
	for i := range 2 * topicsLabelled {
		m.Outcomes.Acknowledged(&sink.Record{Topic: fmt.Sprint("t", i), Result: sink.Published}, 0, 0, false)
	}
	m.Outcomes.EndResults()
	topics := m.Outcomes.Topics()
	if len(topics) > topicsLabelled+1 || topics["t0"] != 1 || topics[otherTopics] < topicsLabelled {
		t.Errorf("got %d series, %d events of the first topic and %d of others", len(topics), topics["t0"],
			topics[otherTopics])
	}
}
