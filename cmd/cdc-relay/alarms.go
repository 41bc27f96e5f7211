package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// alarmsCommand lists and acknowledges alarms.
func alarmsCommand() *cobra.Command {
	return cli.Group("alarms", "What topics lost or moved: list, acknowledge.",
		`An alarm reports that a topic lost records, was recreated, or got more partitions.
It stays, also after a restart, until a person acknowledges it.

Example:

  cdc-relay alarms list`,
		alarmsListCommand(),
		new(alarmsAckCommand).command(),
	)
}

func alarmsListCommand() *cobra.Command {
	var all bool
	cmd := cli.Command("list", "List unacknowledged alarms.",
		`Each alarm names the command that repairs.

Example:

  cdc-relay alarms list --json`,
		func(a *cli.App) error { return listAlarms(a, all) })
	cmd.Flags().BoolVar(&all, "all", false, "Include acknowledged alarms.")
	return cmd
}

// listAlarms prints them.
func listAlarms(a *cli.App, all bool) error {
	return withTables(a, func(ctx context.Context, st *store.Store) error {
		list, err := st.Alarms(ctx, all)
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
	IDs      []string
	All      bool
	By, Note string
}

func (c *alarmsAckCommand) command() *cobra.Command {
	cmd := cli.Command("ack", "Acknowledge alarms.",
		`Acknowledges alarms after a person has looked and repaired what could be repaired. Publishes nothing.
The alarm is no longer open; list --all still shows it.

Examples:

  cdc-relay alarms ack 3

  cdc-relay alarms ack --all --by ann --note "repaired by verify --repair"`, c.Run)
	f := cmd.Flags()
	cli.Arguments(cmd, "id", "Numbers of alarms.", &c.IDs)
	f.BoolVar(&c.All, "all", false, "Acknowledge all open alarms.")
	f.Var(&cli.TextFlag{Into: &c.By, Shown: "NAME"}, "by", "Who acknowledges; this user at this host by default.")
	f.StringVar(&c.Note, "note", "", "Reason, for the record.")
	return cmd
}

// Run acknowledges them.
func (c *alarmsAckCommand) Run(a *cli.App) error {
	if c.All == (len(c.IDs) > 0) {
		a.Wrong("ID", "neither numbers nor --all, or both", "numbers of alarms, or --all")
	}
	ids := make([]int64, len(c.IDs))
	for i, text := range c.IDs {
		var err error
		if ids[i], err = strconv.ParseInt(text, 0, 64); err != nil {
			a.Wrong("ID", fmt.Sprintf("found %q", text), "a whole number")
		}
	}
	return withTables(a, func(ctx context.Context, st *store.Store) error {
		who := c.By
		if who == "" {
			who = cli.UserAtHost()
		}
		acked, err := st.AckAlarms(ctx, ids, c.All, who, c.Note)
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
