package settle

import (
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Nothing is parked, and no lane waits. Break it catches: an allocation, or a lane looked up, for each event that was
// published. Seen to fail with parking told of each of them.
func TestPublishedEventsCostParkingNothing(t *testing.T) {
	const n = 1000
	l := newParkingBench(t).parking.loop
	records := make([]*sink.Record, n)
	for i := range records {
		d := &Delivery{Event: outbox.Event{ID: fmt.Appendf(nil, "%d", i)}}
		d.Record = sink.Record{Topic: "t", Key: fmt.Appendf(nil, "%d", i), Owner: d, Result: sink.Published, Offset: int64(i)}
		records[i] = &d.Record
	}
	once := func() {
		p := l.journal.pending
		p.rows, p.deliveries, p.records, p.ends = p.rows[:0], p.deliveries[:0], p.records[:0], p.ends[:0]
		l.sort(records)
	}
	if got := testing.AllocsPerRun(20, once); got > n/100 {
		t.Errorf("allocations for %d published events: got %.0f, want none", n, got)
	}
	if lanes := cap(l.parking.moved) + cap(l.lanes.moved) + len(l.parking.lanes) + len(l.lanes.byName); lanes != 0 {
		t.Errorf("lanes that published events touched: got %d, want 0", lanes)
	}
}
