package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
)

// askFlags are those of commands that ask something of the relay.
type askFlags struct {
	Note   string `help:"Why; it is kept with what is done." placeholder:"TEXT" env:"NOTE"`
	Who    string `help:"Who asks; by default this user at this host." placeholder:"NAME" env:"WHO"`
	Wait   bool   `help:"Wait until it is done, also while no relay runs." xor:"wait" env:"WAIT"`
	NoWait bool   `help:"Do not wait, though a relay runs." xor:"wait" env:"NO_WAIT"`
}

const (
	requestLook     = 200 * time.Millisecond
	requestPatience = 15 * time.Second // without progress, before the command leaves the rest to the relay
)

// asking is one request and how it is told.
type asking struct {
	a      *app
	st     *store.Store
	slot   string
	flags  askFlags
	kind   string
	filter store.Filter
	what   string // "dead letters"
}

// openTables opens the SQL side: these commands need no running relay, and no HTTP.
func (a *app) openTables(ctx context.Context) (*store.Store, config.Config, error) {
	cfg, err := a.load(needsPostgres)
	if err != nil {
		return nil, cfg, err
	}
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	return st, cfg, err
}

// request writes down what is asked for, and shows how the relay does it.
func (q asking) request(ctx context.Context) error {
	who := q.flags.Who
	if who == "" {
		who = userAtHost()
	}
	id, err := q.st.AddRequest(ctx, q.kind, q.filter, who, q.flags.Note)
	if err != nil {
		return err
	}
	slot, err := q.st.Slot(ctx)
	if err != nil {
		return err
	}
	if q.flags.NoWait || !slot.Active && !q.flags.Wait {
		return q.left(ctx, id, slot.Active)
	}
	r, err := q.follow(ctx, id)
	switch {
	case err != nil:
		return err
	case q.a.cli.JSON:
		if err := q.a.printJSON(r); err != nil {
			return err
		}
	default:
		fmt.Fprintln(q.a.out, q.told(r))
	}
	if r.Error != "" {
		if q.a.cli.JSON {
			return silentError{exitFailed}
		}
		return fmt.Errorf("the relay refused request %d: %s", id, plain(r.Error))
	}
	return nil
}

// left tells of a request that the relay does by itself.
func (q asking) left(ctx context.Context, id int64, active bool) error {
	if q.a.cli.JSON {
		r, err := q.st.Request(ctx, id)
		if err != nil {
			return err
		}
		return q.a.printJSON(r)
	}
	if active {
		fmt.Fprintf(q.a.out, "%s: request %d is written down; the relay executes it now\n", q.kind, id)
	} else {
		fmt.Fprintf(q.a.out, "%s: request %d is written down; no relay holds the slot %s, it will be executed when one runs\n", q.kind, id, q.slot)
	}
	return nil
}

// follow waits for the request and, for as long as something moves, for what it set in motion.
func (q asking) follow(ctx context.Context, id int64) (r *store.Request, err error) {
	bar := newBar(q.a)
	defer bar.end()
	ticker := time.NewTicker(requestLook)
	defer ticker.Stop()
	var done, waiting int64 = -1, -1
	moved := time.Now()
	for {
		if r, err = q.st.Request(ctx, id); err != nil {
			return nil, err
		}
		if r.Done != done || r.Waiting != waiting {
			done, waiting, moved = r.Done, r.Waiting, time.Now()
		}
		if r.FinishedAt != nil && (r.Waiting == 0 || time.Since(moved) > requestPatience) {
			return r, nil
		}
		if r.FinishedAt == nil && !q.flags.Wait && time.Since(moved) > requestPatience {
			return r, nil
		}
		if r.Total != nil {
			bar.show(r.Done-r.Waiting, *r.Total)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped waiting; request %d stays, and the relay executes it", id)
		}
	}
}

// told is the end of the request in a sentence.
func (q asking) told(r *store.Request) string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s: request %d was refused", q.kind, r.ID)
	case r.StartedAt == nil:
		return fmt.Sprintf("%s: request %d is written down, and the relay has not taken it up: it is of an older version, or just starting", q.kind, r.ID)
	case r.FinishedAt == nil:
		return fmt.Sprintf("%s: request %d goes on: %d of %d %s so far", q.kind, r.ID, r.Done, total(r), q.what)
	case q.what == "":
		return fmt.Sprintf("%s: done", q.kind)
	case r.Waiting > 0:
		return fmt.Sprintf("%s: %d of %d %s done; %d wait among the parked events and go out when they can: cdc-relay parked list", q.kind, r.Done-r.Waiting, total(r), q.what, r.Waiting)
	}
	return fmt.Sprintf("%s: %d of %d %s done", q.kind, r.Done, total(r), q.what)
}

func total(r *store.Request) int64 {
	if r.Total == nil {
		return 0
	}
	return *r.Total
}

// userAtHost is who runs this command, as the machine knows it.
func userAtHost() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// bar is a line that shows how far something is, on a terminal only.
type bar struct {
	a     *app
	shown bool
}

const barWidth = 30

func newBar(a *app) *bar { return &bar{a: a} }

func (b *bar) show(done, all int64) {
	if !isTerminal(b.a.err) || all <= 0 {
		return
	}
	b.shown = true
	full := int(min(max(done, 0), all) * barWidth / all)
	fmt.Fprintf(b.a.err, "\r[%s%s] %d/%d", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), done, all)
}

func (b *bar) end() {
	if b.shown {
		fmt.Fprintln(b.a.err)
	}
}
