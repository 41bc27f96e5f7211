package relay

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/offsets"
	"github.com/cdc-relay/cdc-relay/replication"
)

// handed is a stream that hands over the batches it is given.
type handed struct {
	Stream
	batches chan *replication.Batch
}

func (h handed) Batches() <-chan *replication.Batch { return h.batches }
func (h handed) Received() outbox.LSN               { return 0 }

// stuckCounter keeps who adds to it.
type stuckCounter struct {
	prometheus.Counter
	until chan struct{}
}

func (c stuckCounter) Add(float64) { <-c.until }

// Break it catches: a dispatcher that hangs in a step, on a lock that no one gives back, and counts as one that waits:
// /livez goes on to say that it lives, and nothing restarts it. Seen to fail with the dispatcher never said to be
// busy.
func TestDispatcherIsBusyInAStep(t *testing.T) {
	r := assemble(options{config: config.Default()})
	tm := idleTerm(t, r)
	stuck := stuckCounter{r.meter.Stream.Received, make(chan struct{})}
	r.meter.Stream.Received = stuck
	stream := handed{batches: make(chan *replication.Batch)}
	s := &session{r: r, term: tm, stream: stream, ledger: offsets.New(1), decoder: decoder.New(decoder.Config{}),
		late: make(chan lateRows)}
	router, err := message.New(r.c, message.Columns(r.c), "jsonb", message.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	s.only, s.sources, s.counting = &source{router: router}, []<-chan *replication.Batch{stream.batches}, s.ledger
	begin := binary.BigEndian.AppendUint64([]byte{'B'}, 100)
	begin = append(begin, make([]byte, 12)...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	busy := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); (r.meter.Pulses.Dispatching.BusyFor() > 0) != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("the dispatcher is busy: got %v, want %v", !want, want)
			}
		}
	}
	go func() { ended <- s.dispatch(ctx, nil) }()
	stream.batches <- &replication.Batch{Messages: []replication.Message{{Data: begin}}}
	busy(true)
	close(stuck.until)
	busy(false)
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("dispatch: got %v, want %v", err, context.Canceled)
	}
}
