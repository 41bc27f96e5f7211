package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
)

// watch prints one line a second, in place on a terminal.
func watch(ctx context.Context, a *cli.App, load *demoLoad, r *relay.Relay) error {
	ticker := time.NewTicker(demoTick)
	defer ticker.Stop()
	begun, before := time.Now(), 0
	say := a.Narration()
	terminal := cli.IsTerminal(say)
	if terminal {
		defer cli.Fprintln(say)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, half, most := load.interval()
		status := r.Status()
		line := fmt.Sprintf("%5.0fs  %-8s received %d  %d/s  latency p50 %s p95 %s  lag %s  backlog %s",
			time.Since(begun).Seconds(), status.Role, now.received, now.received-before, milliseconds(half), milliseconds(most),
			cli.Figure(status.LagBytes, cli.Bytes), cli.Figure(status.Backlog, cli.Whole))
		before = now.received
		var err error
		if terminal {
			err = cli.Overwrite(say, line)
		} else {
			_, err = io.WriteString(say, line+"\n")
		}
		if err != nil {
			return fmt.Errorf("write the demo's progress: %w", err)
		}
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// demoSummary is the outcome in JSON.
type demoSummary struct {
	Broker     string  `json:"broker"`
	Written    int     `json:"written"`
	Received   int     `json:"received"`
	Missing    int     `json:"missing"`
	Duplicated int     `json:"duplicated"`
	OutOfOrder int     `json:"out_of_order"`
	Latency50  float64 `json:"latency_p50_seconds"` // from insert to consumer
	Latency95  float64 `json:"latency_p95_seconds"`
}

func sumUp(a *cli.App, t demoTotals, broker string) error {
	if a.JSON {
		err := a.PrintJSON(demoSummary{
			Broker: broker, Written: t.written, Received: t.received, Missing: t.missing,
			Duplicated: t.duplicated,
			OutOfOrder: t.reordered, Latency50: t.half.Seconds(), Latency95: t.most.Seconds(),
		})
		if err != nil {
			return err
		}
	} else {
		cli.Fprintf(a.Out,
			"\nwritten %d, received %d: missing %d, duplicated %d, out of order %d; latency from insert to consumer p50 %s, "+
				"p95 %s\n",
			t.written, t.received, t.missing, t.duplicated, t.reordered, milliseconds(t.half), milliseconds(t.most))
	}
	if t.missing > 0 || t.reordered > 0 {
		return errors.New("the consumer did not get every event in order")
	}
	return nil
}
