// Package ask is how commands ask something of a relay: its status over HTTP; anything else, whether it runs or
// not, by a row in its table of requests: they choose events, count and list them, and show what the relay makes of
// the request. It executes nothing itself.
//
// Tested by the commands that ask (cmd/cdc-relay).
package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Hand is the flags that say who does something, and why.
type Hand struct {
	Note, Who string
}

// AddTo implements cli.FlagSet.
func (h *Hand) AddTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &h.Note, Shown: "TEXT"}, "note", "Why; it is kept with what is done.")
	f.Var(&cli.TextFlag{Into: &h.Who, Shown: "NAME"}, "who", "Who asks; by default this user at this host.")
}

// Flags is the flags of commands that ask something of the relay.
type Flags struct {
	Hand
	Timeout time.Duration
	NoWait  bool
}

// AddTo implements cli.FlagSet.
func (own *Flags) AddTo(cmd *cobra.Command) {
	f := cmd.Flags()
	own.Hand.AddTo(cmd)
	f.DurationVar(&own.Timeout, "timeout", 0, "How long to wait for the outcome. Default: 30s while a relay runs, "+
		"else not at all.")
	f.Lookup("timeout").DefValue = "" // it depends on whether a relay runs
	f.BoolVar(&own.NoWait, "no-wait", false, "Do not wait for the outcome.")
	cmd.MarkFlagsMutuallyExclusive("timeout", "no-wait")
}

const (
	requestLook     = 200 * time.Millisecond
	requestWait     = 30 * time.Second // by default, for the outcome
	requestPatience = 15 * time.Second // without progress, before a program that must wait leaves the rest to the relay
)

// Name is who asks.
func (h Hand) Name() string {
	if h.Who != "" {
		return h.Who
	}
	return cli.UserAtHost()
}

// Check notes a time-out that is none.
func (f Flags) Check(a *cli.App) {
	if a.Given("timeout") {
		a.Positive("--timeout", f.Timeout)
	}
}

// patience is how long to wait; 0: not at all. Without a relay nothing happens, unless one is about to start.
func (f Flags) patience(relaying bool) time.Duration {
	switch {
	case f.Timeout > 0:
		return f.Timeout
	case relaying && !f.NoWait:
		return requestWait
	}
	return 0
}

// asking is one request and how it is told.
type asking struct {
	a      *cli.App
	st     *store.Store
	slot   string
	flags  Flags
	kind   string
	filter store.Filter
	what   string // "dead letters"
}

// Load loads the configuration of a command that works with the slot.
func Load(ctx context.Context, a *cli.App, needs []string) (config.Config, error) {
	cfg, err := a.Load(needs)
	if err != nil {
		return cfg, err
	}
	return Name(ctx, a.Origin, cfg)
}

// Name asks the database for the slot if postgres.slot is not set, and for service if that is not set either. The
// origin of a key is "" if it is not set. With an error the configuration is as it was.
func Name(ctx context.Context, origin func(key string) string, cfg config.Config) (config.Config, error) {
	if origin("postgres.slot") != "" {
		return cfg, nil
	}
	slot, err := store.FindSlot(ctx, relay.StoreConfig(cfg))
	if err != nil || slot == cfg.Postgres.Slot {
		return cfg, err
	}
	cfg.Postgres.Slot = slot
	if origin("service") == "" { // it is called as its slot is
		cfg.Service = strings.Replace(slot, "cdc_relay_", "cdc-relay-", 1)
	}
	return cfg, nil
}

// OpenTables opens the SQL side: these commands need no running relay, and no HTTP.
func OpenTables(ctx context.Context, a *cli.App) (*store.Store, config.Config, error) {
	return Outbox{}.OpenTables(ctx, a)
}

// OpenTables opens the SQL side of the outbox, or without a name of all that the slot has.
func (o Outbox) OpenTables(ctx context.Context, a *cli.App) (*store.Store, config.Config, error) {
	cfg, err := Load(ctx, a, cli.NeedsPostgres)
	if err != nil {
		return nil, cfg, err
	}
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return nil, cfg, err
	}
	named, err := st.Named(ctx, o.Of)
	if err != nil {
		st.Close()
	}
	return named, cfg, BadFilter(err)
}

// OpenOne is OpenTables for what can be done with one outbox only.
func (o Outbox) OpenOne(ctx context.Context, a *cli.App) (*store.Store, config.Config, error) {
	st, cfg, err := o.OpenTables(ctx, a)
	if err == nil {
		if err = st.NeedOne(); err != nil {
			st.Close()
		}
	}
	return st, cfg, BadFilter(err)
}

// OpenNamed opens the SQL side of the outbox for what can be done with one only.
func (o Outbox) OpenNamed(ctx context.Context, cfg config.Config) (*store.Store, error) {
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return nil, err
	}
	named, err := st.Named(ctx, o.Of)
	if err == nil {
		err = named.NeedOne()
	}
	if err != nil {
		st.Close()
	}
	return named, BadFilter(err)
}

// NotOfSeveral refuses a command that does not work with outbox.tables.
func NotOfSeveral(cfg config.Config, why string) error {
	if cfg.Outbox.Tables == "" {
		return nil
	}
	return cli.Usage(fmt.Errorf("not with outbox.tables: %s", why))
}

// Change is something to be done about events: dead letters or parked ones.
type Change struct {
	Kind, What string            // of the request; "dead letters"
	Confirm    func(int64) error // agrees to their number; nil: no one is asked
}

// Chosen is the flags of a change.
type Chosen struct {
	Choose
	All
	Flags
}

// AddTo implements cli.FlagSet.
func (c *Chosen) AddTo(cmd *cobra.Command) {
	c.Choose.AddTo(cmd)
	c.All.AddTo(cmd)
	c.Flags.AddTo(cmd)
}

// Filter is what the flags choose; mistakes in them are noted.
func (c *Chosen) Filter(a *cli.App) store.Filter { return c.toChange(a, c.All) }

// Do asks the relay for it, for what is chosen.
func (c Change) Do(a *cli.App, chosen Chosen) error {
	filter := chosen.toChange(a, chosen.All)
	chosen.Check(a)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := chosen.OpenOne(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	q := asking{a: a, st: st, slot: cfg.Postgres.Slot, flags: chosen.Flags, kind: c.Kind, filter: filter, what: c.What}
	n, at, err := st.CountUntil(ctx, c.Kind, filter)
	if err != nil {
		return BadFilter(err)
	}
	absent, err := q.absent(ctx, n)
	if err != nil {
		return err
	}
	if n == 0 {
		return q.nothing(ctx, absent)
	}
	if c.Confirm != nil {
		if err := c.Confirm(n); err != nil {
			return err
		}
	}
	q.filter.Until = &at // what comes while a person thinks is not meant
	if err := q.request(ctx); err != nil {
		return err
	}
	return notThere(absent)
}

// Control asks for what concerns the relay as a whole.
func Control(a *cli.App, kind string, filter store.Filter, flags Flags) error {
	flags.Check(a)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	return asking{a: a, st: st, slot: cfg.Postgres.Slot, flags: flags, kind: kind, filter: filter}.request(ctx)
}

// BadFilter makes a mistake in what was chosen one of usage.
func BadFilter(err error) error {
	if errors.Is(err, store.ErrFilter) || errors.Is(err, store.ErrCursor) {
		return cli.Usage(err)
	}
	return err
}

// StateOf returns the state of a dead letter.
func StateOf(d *store.DeadLetter) string {
	switch {
	case d.ReplayedAt != nil:
		return "replayed by " + cli.Text(d.ResolvedBy)
	case d.DiscardedAt != nil:
		return "discarded by " + cli.Text(d.ResolvedBy)
	case d.Replaying:
		return "on its way"
	}
	return "open"
}
