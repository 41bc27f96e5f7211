package packages

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	turns        = 3
	leastOfBare  = 0.7
	sentAtOnce   = 5_000
	effectsSoFar = "SELECT count(*) FROM effect"
)

// Each package beside a loop of the same Kafka client that has the same effect, in turns, in processes of their own.
// The contract describes command loop. The time is from the first effect to the last.
func TestPackagesAreNearlyAsFastAsABareLoop(t *testing.T) {
	harness.Full(t)
	events := harness.Count(t, "events at a package's rate")
	if events == 0 {
		t.Skip("at night")
	}
	for name, command := range languages {
		t.Run(name, func(t *testing.T) { // one at a time, as they are measured
			f := newFlow(t, newWorld(t, harness.Postgres(t), command(t)))
			f.pg.Exec(t, "ALTER TABLE effect ADD at timestamptz DEFAULT clock_timestamp()")
			for f.sent < events {
				values := make([]object, min(sentAtOnce, events-f.sent))
				for i := range values {
					values[i] = object{}
				}
				f.produce(t, values...)
			}
			rates := map[string][]float64{}
			for turn := range turns {
				for _, op := range []string{"loop", "run"} {
					rate := f.rate(t, op, fmt.Sprintf("%s-%d", op, turn))
					t.Logf("turn %d, %s: %.0f events a second", turn+1, op, rate)
					rates[op] = append(rates[op], rate)
				}
			}
			for _, all := range rates {
				slices.Sort(all)
			}
			bare, inbox := rates["loop"][turns/2], rates["run"][turns/2]
			t.Logf("medians: inbox %.0f events a second, bare loop %.0f: %.2f of it", inbox, bare, inbox/bare)
			if inbox < leastOfBare*bare {
				t.Errorf("got %.2f of the bare loop's rate, want %.1f or more", inbox/bare, leastOfBare)
			}
		})
	}
}

// rate is how many events a second a driver handles of the whole topic, with as many handlers as partitions.
func (f *flow) rate(t *testing.T, op, group string) float64 {
	t.Helper()
	f.clear(t)
	d := f.start(t, nil)
	defer d.kill()
	if answer := d.do(object{
		"op": op, "brokers": f.kafka.Addrs, "topics": []string{f.topic}, "group": f.topic + group, "workers": partitions,
	}); answer["error"] != nil {
		t.Fatalf("%s: %v", op, answer["error"])
	}
	for got := -1; got < f.sent; {
		before := got
		harness.Eventually(t, time.Minute, "more effects", func(ctx context.Context) string {
			text, err := f.pg.TryQuery(ctx, effectsSoFar)
			if got, _ = strconv.Atoi(text); err != nil || got <= before {
				return fmt.Sprintf("got %s (%v), want %d: %.2000s", text, err, f.sent, d.err)
			}
			return ""
		})
	}
	if answer := d.do(object{"op": "stop"}); answer["error"] != nil {
		t.Errorf("stop: %v", answer["error"])
	}
	const each = "SELECT count(*) || ' ' || count(DISTINCT n) FROM effect"
	if got, want := f.pg.Query(t, each), fmt.Sprint(f.sent, f.sent); got != want {
		t.Errorf("%s: effects, different: got %s, want %s", op, got, want)
	}
	d.kill()
	used := d.command.ProcessState.UserTime() + d.command.ProcessState.SystemTime()
	t.Logf("%s: %v of CPU for each event, with the start of the process", op, used/time.Duration(f.sent))
	text := f.pg.Query(t, "SELECT (count(*) - 1) / extract(epoch FROM max(at) - min(at)) FROM effect")
	rate, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}
