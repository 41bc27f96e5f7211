package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// alarmsCommand is what topics lost or moved.
type alarmsCommand struct {
	List alarmsListCommand `cmd:"" help:"List alarms that nobody has acknowledged."`
	Ack  alarmsAckCommand  `cmd:"" help:"Acknowledge alarms."`
}

func (alarmsCommand) Help() string {
	return `An alarm says that a topic lost records, was created again, or got more partitions.
It stays, also after a restart, until a person acknowledges it.

Example:

  cdc-relay alarms list`
}

type alarmsListCommand struct {
	All bool `help:"Those that were acknowledged, too."`
}

func (alarmsListCommand) Help() string {
	return `Each alarm names the command that repairs.

Example:

  cdc-relay alarms list --json`
}

// Run prints them.
func (c alarmsListCommand) Run(a *cli.App) error {
	return withTables(a, func(ctx context.Context, st *store.Store) error {
		list, err := st.Alarms(ctx, c.All)
		switch {
		case err != nil:
			return err
		case a.JSON:
			return a.PrintJSON(list)
		case len(list) == 0:
			cli.Fprintln(a.Out, "no alarms")
			return nil
		}
		w, now := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0), time.Now()
		cli.Fprintln(w, cli.Own("ID\tKIND\tTOPIC\tCOUNT\tFIRST\tLAST\tACKNOWLEDGED"))
		for i := range list {
			l := &list[i]
			by := "no"
			if l.AckedAt != nil {
				by = cli.Ago(*l.AckedAt, now) + " ago by " + cli.Plain(l.AckedBy)
				if l.AckedNote != "" {
					by += ": " + cli.Plain(l.AckedNote)
				}
			}
			cli.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", l.ID, l.Kind, cli.Plain(l.Topic), l.Count,
				cli.Ago(l.FirstSeen, now), cli.Ago(l.At, now), by)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for i := range list {
			tellAlarm(a, &list[i])
		}
		return nil
	})
}

func tellAlarm(a *cli.App, l *store.Alarm) {
	cli.Fprintf(a.Out, "\n%d: topic %s: %s\n", l.ID, cli.Plain(l.Topic), cli.Plain(l.Text))
	if l.Repair != "" {
		cli.Fprintf(a.Out, "   Repair: %s\n", l.Repair)
	}
	if l.AckedAt == nil {
		cli.Fprintf(a.Out, "   Then:   cdc-relay alarms ack %d\n", l.ID)
	}
}

type alarmsAckCommand struct {
	IDs []int64 `arg:"" optional:"" name:"id" help:"Numbers of alarms."`
	All bool    `help:"All that are open."`
	By  string  `help:"Who has looked; by default this user at this host." placeholder:"NAME"`

	Note string `help:"Why, for the record."`
}

func (alarmsAckCommand) Help() string {
	return `Says that a person has looked, and has repaired what could be. It publishes nothing.
The alarm counts as open no more; it stays in the list of --all.

Examples:

  cdc-relay alarms ack 3

  cdc-relay alarms ack --all --by ann --note "repaired by verify --repair"`
}

// Run acknowledges them.
func (c alarmsAckCommand) Run(a *cli.App) error {
	if c.All == (len(c.IDs) > 0) {
		a.Wrong("ID", "neither numbers nor --all, or both", "numbers of alarms, or --all")
	}
	return withTables(a, func(ctx context.Context, st *store.Store) error {
		who := c.By
		if who == "" {
			who = cli.UserAtHost()
		}
		acked, err := st.AckAlarms(ctx, c.IDs, c.All, who, c.Note)
		switch {
		case errors.Is(err, store.ErrNoAlarm):
			return fmt.Errorf("%w; nothing was acknowledged; cdc-relay alarms list shows those that are open", err)
		case err != nil:
			return err
		case a.JSON:
			return a.PrintJSON(map[string][]int64{"acknowledged": acked})
		}
		cli.Fprintf(a.Out, "%d alarms acknowledged by %s\n", len(acked), cli.Plain(who))
		return nil
	})
}

// withTables gives do the relay's tables until a signal ends it.
func withTables(a *cli.App, do func(context.Context, *store.Store) error) error {
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, _, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	return do(ctx, st)
}
