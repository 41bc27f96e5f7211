//go:build linux

package replication

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// The time that a batch waited for its receiver does not count as the server's silence, though nothing was read.
// Break it catches: a connection given up, for no fault of it, once the receiver goes on. Seen to fail with that time
// counted.
func TestBackpressureIsNotTheServersSilence(t *testing.T) {
	f := newFixture(t)
	s, err := Open(t.Context(), f.c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	confirmed := func() outbox.LSN { return s.Confirmed }
	s.pending, s.lastReceived = batches.Get().(*Batch), time.Now().Add(-2*f.c.WALSenderTimeout)
	if err := s.tick(confirmed); !isA[*SilentError](err) {
		t.Fatalf("nothing from the server for twice the time-out: got %v, want a SilentError", err)
	}
	waits := make(chan struct{})
	told := sync.OnceFunc(func() { close(waits) })
	go func() {
		<-waits
		(<-s.Batches()).Recycle(true)
	}()
	if err := s.handOver(t.Context(), func() outbox.LSN { // asked for while the batch waits
		told()
		return s.Confirmed
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.tick(confirmed); err != nil {
		t.Errorf("the receiver was what took so long: got %v, want no error", err)
	}
}

// Fails without the liveness check: a peer that is gone without a word would be waited for forever.
func TestSilentServerIsNoticed(t *testing.T) {
	f := newFixture(t)
	hole := newHole(t, fmt.Sprintf("127.0.0.1:%d", server.Port()))
	f.c.URL = strings.Replace(f.c.URL, fmt.Sprintf(":%d/", server.Port()), fmt.Sprintf(":%d/", hole.port()), 1)
	r := f.open()
	go func() {
		for b := range r.Batches() {
			b.Recycle(true)
		}
	}()
	hole.swallow.Store(true)
	select {
	case err := <-r.end:
		if !isA[*SilentError](err) {
			t.Errorf("got %v, want a SilentError", err)
		}
	case <-time.After(5 * f.c.WALSenderTimeout):
		t.Error("a silent server was not noticed")
	}
}
