package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// narrator prints what happens: lines that stay, and on a terminal below them one that is written over.
type narrator struct {
	terminal bool
	begun    time.Time

	mu  sync.Mutex // guards what follows
	to  io.Writer
	one bool // the last line is to be written over
}

func newNarrator(a *cli.App) *narrator {
	to := a.Narration()
	return &narrator{terminal: cli.IsTerminal(to), begun: time.Now(), to: to}
}

// line prints a line that stays, with the seconds since the start.
func (n *narrator) line(format string, arguments ...any) {
	text := fmt.Sprintf("%5.0fs  ", time.Since(n.begun).Seconds()) + fmt.Sprintf(format, arguments...)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.one {
		_ = cli.Overwrite(n.to, "")
		n.one = false
	}
	cli.Fprintln(n.to, text)
}

// figures prints the figures, on a terminal in the place of those before.
func (n *narrator) figures(text string) error {
	text = fmt.Sprintf("%5.0fs  %s", time.Since(n.begun).Seconds(), text)
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	if n.terminal {
		n.one, err = true, cli.Overwrite(n.to, text)
	} else {
		_, err = io.WriteString(n.to, text+"\n")
	}
	if err != nil {
		return fmt.Errorf("write the demo's progress: %w", err)
	}
	return nil
}

// end leaves the last figures where they are.
func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.one {
		cli.Fprintln(n.to)
		n.one = false
	}
}

// watch prints one line a second.
func watch(ctx context.Context, n *narrator, load *demoLoad, status func() figures) error {
	ticker := time.NewTicker(demoTick)
	defer ticker.Stop()
	defer n.end()
	before := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, half, most := load.interval()
		f := status()
		err := n.figures(fmt.Sprintf("%-8s received %d  %d/s  latency p50 %s p95 %s  lag %s  backlog %s",
			f.Role, now.received, now.received-before, milliseconds(half), milliseconds(most),
			cli.Figure(f.LagBytes, cli.Bytes), cli.Figure(f.Backlog, cli.Whole)))
		if err != nil {
			return err
		}
		before = now.received
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
