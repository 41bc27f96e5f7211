package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/internal/bench"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a scenario that measures nothing, a floor without a stream, a judge that is not asked, and things
// of a run that stay behind. Seen to fail with the publication left, with no rate of the stream alone, and with the
// judge not asked.
func TestBenchMeasuresJudgesAndLeavesNothing(t *testing.T) {
	harness.Full(t)
	s := newServices(t, nil)
	plot := filepath.Join(t.TempDir(), "latency.svg")
	o := cdcRelay(t, s.environ, "bench", "--scenarios", "drain-100,drain-1,drain-one-tx,paced", "--events", "1000",
		"--rates", "100", "--for", "2s",
		"--runs", "1", "--keys", "50", "--partitions", "3", "--svg", plot, "--json")
	if o.code != exitDone {
		t.Fatalf("got exit code %d, errors: %s", o.code, o.errors)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(o.out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Scenarios) != 4 {
		t.Fatalf("got %d scenarios, want 4: %s", len(report.Scenarios), o.out)
	}
	for _, s := range report.Scenarios {
		r := s.Runs[0]
		if r.Missing+r.Duplicated+r.OutOfOrder+r.Different != 0 || r.Judged != r.Events || r.Rate <= 0 {
			t.Errorf("%s: got %+v, want a rate, and every event judged and right", s.Name, r)
		}
		// A busy machine commits fewer than 100 events a second, and the report says so.
		if drain := s.Name != "paced"; drain && (r.Events != 1000 || r.Floor <= 0 || r.CPU <= 0 || r.PeakMiB <= 0) ||
			!drain && (r.Events == 0 || r.P50 < 0 || r.P99 <= 0 || r.P99 < r.P50) {
			t.Errorf("%s: got %+v, want everything measured", s.Name, r)
		}
	}
	if svg, err := os.ReadFile(plot); err != nil || !strings.Contains(string(svg), "100 commits/s") {
		t.Errorf("the plot: got %.80s, %v; want a line for 100 commits/s", svg, err)
	}
	left := s.pg.Query(t,
		`SELECT concat_ws(' ', (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),
 (SELECT count(*) FROM pg_publication),
		(SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'cdc\_relay\_bench\_%'))`)
	if left != "0 0 0" {
		t.Errorf("slots, publications, schemas that were left: got %s, want none", left)
	}
	if topics := benchTopics(t, s.broker.Addresses()); len(topics) > 0 {
		t.Errorf("topics that were left: %v", topics)
	}
}

// Break it catches: a mistake that is found only after something was made, or that hides another.
func TestBenchNamesAllMistakesAtOnce(t *testing.T) {
	cdcRelay(t, nil, "bench", "--demo", "--events", "0", "--rates", "10,0", "--runs", "0", "--for", "1ms").
		want(t, exitUsage, nil, []string{"--events", "--rates", "--runs", "--for"})
	cdcRelay(t, nil, "bench").want(t, exitUsage, nil, []string{"postgres.url", "kafka.brokers"})
	cdcRelay(t, nil, "bench", "--demo", "--scenarios", "drain-7").want(t, exitUsage, nil, []string{"drain-7"})
}

func benchTopics(t *testing.T, brokers []string) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(topics.Names(), func(name string) bool {
		return !strings.HasPrefix(name, "cdc-relay-bench-")
	})
}
