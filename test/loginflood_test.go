package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// 100,000 keys are parked, and 64 clients guess tokens as fast as they can. Breaks it catches: events, probes or the
// right token that wait for wrong ones, and memory that grows with them.
func TestFloodOfLogInsDelaysNeitherEventsNorProbes(t *testing.T) {
	keys := harness.Count(t, "parked keys under log-ins")
	if keys == 0 {
		t.Skip("left to the night: it measures. TestAThousandHostileClientsDoNotSlowEventsDown is the small one")
	}
	const token = "0123456789-token-0123456789-token"
	file := t.TempDir() + "/token"
	writeSecret(t, file, token)
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t), "http.token_file", file)
	s.parkedBefore(t, keys, keys, "now() + interval '1 hour'")
	s.start(t)
	p99 := func() float64 {
		began := s.pg.Query(t, "SELECT clock_timestamp()")
		s.load(t, harness.Workload{Rate: 100, Writers: 2, Events: 1000}).Wait(t)
		s.pg.WaitConfirmed(t, s.settings.Slot(), settlePatience)
		return s.seconds(t, fmt.Sprintf(`SELECT make_interval(secs => percentile_cont(0.99) WITHIN GROUP (ORDER BY
			extract(epoch FROM j.published_at - o.created_at)))
			FROM cdc_relay_journal j JOIN outbox_events o ON o.id = j.event_id WHERE o.created_at >= '%s'`, began))
	}
	quiet, before := p99(), s.relay.PeakRSS(t)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var refused atomic.Int64
	for range 64 {
		flood.Go(func() { s.guess(ctx, &refused) })
	}
	slowest := time.Duration(0)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		for ctx.Err() == nil {
			began := time.Now()
			code, _, err := s.relay.Ask(ctx, "/readyz")
			if ctx.Err() == nil && (err != nil || code != http.StatusOK) {
				t.Errorf("/readyz under the flood: %d, %v", code, err)
			}
			slowest = max(slowest, time.Since(began))
		}
	}()
	flooded := p99()
	stop()
	flood.Wait()
	<-probed
	grown := (s.relay.PeakRSS(t) - before) >> 20
	t.Logf("%d keys parked, %d guesses refused: p99 of events %.3f s, %.3f s before; /readyz took %v at most; memory "+
		"grew by %d MiB", keys, refused.Load(), flooded, quiet, slowest.Round(time.Millisecond), grown)
	if refused.Load() < 100 {
		t.Errorf("%d guesses: the scenario shows nothing", refused.Load())
	}
	if flooded > 10*quiet+2 || slowest > 5*time.Second || grown > 48 {
		t.Errorf("got p99 %.3f s, /readyz %v, memory +%d MiB; want at most %.3f s, 5s, 48 MiB", flooded, slowest, grown,
			10*quiet+2)
	}
}

// guess sends wrong tokens, in both forms, until the context ends.
func (s *scenario) guess(ctx context.Context, refused *atomic.Int64) {
	var client http.Client
	defer client.CloseIdleConnections()
	client.Transport = &http.Transport{}
	for n := 0; ctx.Err() == nil; n++ {
		url, body := s.relay.URL+"/api/v1/session", fmt.Sprintf(`{"name": "guest", "token": "wrong-%d"}`, n)
		if n%2 == 1 {
			url, body = s.relay.URL+"/api/v1/retry", "{}"
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return
		}
		q.Header.Set("Content-Type", "application/json")
		q.Header.Set("Authorization", "Bearer wrong")
		answer, err := client.Do(q)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusTooManyRequests {
			refused.Add(1)
		}
	}
}
