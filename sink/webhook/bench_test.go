package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
)

// asReceiver makes this program a receiver that answers at once, so that its processor time is not the sender's.
const asReceiver = "CDC_RELAY_TEST_AS_RECEIVER"

func receive() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go func() { // ends with the benchmark
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusNoContent)
	})))
}

// startReceiver is its address.
func startReceiver(b *testing.B) string {
	b.Helper()
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), asReceiver+"=1")
	stop, err := self.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := self.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := self.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stop.Close(); _ = self.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// cost reports events per second, and this process's processor seconds per million events.
func cost(b *testing.B, run func()) {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	b.ResetTimer()
	run()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((used()-before).Seconds()/float64(b.N)*1e6, "CPU-s/M")
}

// BenchmarkLanes posts signed events of about 300 bytes through the engine to a receiver, another process, that
// answers at once; one of 16 lanes each.
//
//	go test -run '^$' -bench . -benchtime 100000x ./sink/webhook
func BenchmarkLanes(b *testing.B) {
	d, err := webhook.New(webhook.Config{
		URL: "http://" + startReceiver(b), IDHeader: "id", ContentType: "application/json", UserAgent: "bench",
		Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	})
	if err != nil {
		b.Fatal(err)
	}
	e := sink.New(d, sink.Config{})
	free := make(chan *sink.Record, 10_000)
	for i := range cap(free) {
		r := &sink.Record{Topic: "orders", Key: fmt.Appendf(nil, "order-%d", i), Value: body, Cost: 900}
		for _, name := range []string{"event_type", "aggregate_type", "created_at", "x-outbox-position",
			"x-outbox-source", "x-outbox-epoch"} {
			r.Headers.Add(name, []byte("value of it"))
		}
		r.Headers.Add("id", fmt.Appendf(nil, "019aa7e4-3c81-7d2b-9f0a-%012d", i))
		free <- r
	}
	cost(b, func() {
		go func() {
			for range b.N {
				if _, err := e.Submit(context.Background(), []*sink.Record{<-free}); err != nil {
					b.Error(err)
					return
				}
			}
		}()
		var some []*sink.Record
		for done := 0; done < b.N; done += len(some) {
			if some, err = e.Results(context.Background(), some[:0]); err != nil {
				b.Fatal(err)
			}
			e.Settled(some)
			for _, r := range some {
				free <- r
			}
		}
	})
	if err := e.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPlainLoops measures a program that posts by itself: 16 loops, each on http.Client, not signed, and
// without any order.
func BenchmarkPlainLoops(b *testing.B) {
	url := "http://" + startReceiver(b) + "/orders"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 15 * time.Second}
	cost(b, func() {
		var loops sync.WaitGroup
		for loop := range 16 {
			loops.Go(func() {
				for i := loop; i < b.N; i += 16 {
					q, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					for _, name := range []string{"Event-Type", "Aggregate-Type", "Created-At", "X-Outbox-Position", "X-Outbox-Source",
						"X-Outbox-Epoch", "X-Outbox-Key"} {
						q.Header.Set(name, "value of it")
					}
					q.Header.Set("Content-Type", "application/json")
					q.Header.Set("Webhook-Id", fmt.Sprintf("019aa7e4-3c81-7d2b-9f0a-%012d", i))
					answer, err := client.Do(q)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
				}
			})
		}
		loops.Wait()
	})
	client.CloseIdleConnections()
}

var body = []byte(`{"n": 1, "filler": "` + strings.Repeat("x", 280) + `"}`)
