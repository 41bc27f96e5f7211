package kafka

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
)

// alive is the memory that is in use after garbage was collected, in bytes.
func alive() int64 {
	runtime.GC()
	runtime.GC() // what pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A broker takes requests and never answers, which is when most is kept: records, encoded batches for the resend, and
// the client's copy of them, for each of 48 partitions. Breaks it catches: encoded batches that are as large as the
// window, or grow with the number of partitions (88 MiB without a bound on the bytes of batches without an answer).
// Seen to fail with batches without an answer let fill the whole window.
func TestWindowOf32MiBCostsLessThan48(t *testing.T) {
	if raceDetector || testing.Short() {
		t.Skip("the race detector keeps memory of its own; filling the window takes 10 s")
	}
	const window, most = 32 << 20, 48 << 20
	for name, size := range map[string]int{"SmallRecords": 300, "LargeRecords": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			c := newFake(t, kfake.NumBrokers(3))
			var requests atomic.Int64
			proxy := cutproxy.New(func(r cutproxy.Request) cutproxy.Action {
				if r.APIKey == 0 {
					requests.Add(1)
					return cutproxy.Action{Kind: cutproxy.Withhold}
				}
				return cutproxy.Action{}
			})
			defer proxy.Close()
			d := newUnowned(t, c.ListenAddrs(), func(c *Config) { c.Dial, c.RequestTimeout = proxy.Dial, 400*time.Millisecond })
			if err := d.CreateTopic(testContext(t), "many", 48, 1); err != nil {
				t.Fatal(err)
			}
			const overhead = 640 // what a record takes beside its bytes; the relay counts as much
			before := alive()
			e := sink.New(d, sink.Config{MaxBytes: window})
			ctx, cancel := context.WithTimeout(testContext(t), 5*time.Second)
			defer cancel()
			for n := 0; ctx.Err() == nil; n++ {
				r := &sink.Record{Topic: "many", Key: fmt.Append(nil, n%1000), Value: bytes.Repeat([]byte{byte(n)}, size),
					Cost: size + overhead}
				_, _ = e.Submit(ctx, []*sink.Record{r})
			}
			grown := alive() - before
			s := e.Status()
			t.Logf("%d MiB alive beside what was before, with %d MiB in the window and %d records handed over in %d requests",
				grown>>20, s.Bytes>>20, s.Unrecorded, requests.Load())
			if s.Bytes < window*9/10 {
				t.Errorf("window: got %d bytes, want it full", s.Bytes)
			}
			if grown > most {
				t.Errorf("alive: got %d MiB, want at most %d", grown>>20, most>>20)
			}
			ended, end := context.WithCancel(ctx)
			end()
			_ = e.Close(ended)
		})
	}
}
