package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/relay"
)

// relayCommand returns the hidden command that childRelay runs.
func relayCommand() *cobra.Command {
	c := cli.Command("relay", "Run the relay alone, for the demo, which breaks it.", "", runRelayAlone)
	c.Hidden = true
	return c
}

//go:embed break.js
var breakScript []byte

// panel is the demo's part of the relay's console.
type panel struct {
	demo *sender

	mu    sync.Mutex // guards what follows
	scene scene
}

func (p *panel) set(s scene) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scene = s
}

func (p *panel) show() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.scene
}

// everything is the name of all incidents, one after another.
const everything = "all"

// press takes an incident that the console asks for; begin asks the demo to play it.
func (p *panel) press(name string) (begin func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name != everything && !slices.ContainsFunc(p.scene.Incidents, func(c choice) bool { return c.Name == name }) {
		return nil, fmt.Errorf("the demo has no incident %.40q", name)
	}
	if p.scene.Playing != "" {
		return nil, errors.New("something is broken already: wait until that is over")
	}
	p.scene.Playing = name // until the demo says so, or else a second press would be lost
	// If the demo cannot be told, it is gone, and this process ends with it.
	return func() { _ = p.demo.send(report{Break: name}) }, nil
}

// runRelayAlone relays until standard input ends. It ignores Ctrl-C: the program that started it decides.
func runRelayAlone(a *cli.App) (err error) {
	signal.Ignore(syscall.SIGINT)
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &panel{demo: &sender{to: os.Stdout}}
	go func() {
		receive(os.Stdin, p.set)
		cancel()
	}()
	log, lines := a.Logger(cfg)
	r, err := newRelay(a, cfg, log, relay.WithLoggerTo(log, lines))
	if err != nil {
		return err
	}
	c := webConfig(cfg, log)
	c.Demo = &web.Demo{Script: breakScript, Show: p.show, Break: p.press}
	server, err := web.Listen(c, r)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	go reportFigures(ctx, p.demo, r)
	return errors.Join(r.Run(ctx), server.Close())
}

// reportFigures tells the demo the relay's figures each second, and at once when its role changes.
func reportFigures(ctx context.Context, to *sender, r *relay.Relay) {
	ticker := time.NewTicker(demoPoll / 2)
	defer ticker.Stop()
	var role relay.Role
	var last time.Time
	for {
		f := figuresOf(r.Status())
		if f.Role != role || time.Since(last) >= demoTick {
			role, last = f.Role, time.Now()
			if to.send(report{Figures: &f}) != nil {
				return // the demo is gone, and standard input ends too
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
