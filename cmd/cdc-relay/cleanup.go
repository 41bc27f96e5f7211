package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
)

type cleanupCommand struct {
	ask.Outbox
	DryRun bool
	Batch  int
	Pause  time.Duration
}

func (c *cleanupCommand) command() *cobra.Command {
	cmd := cli.Command("cleanup", "Delete what is older than its retention, in small batches.",
		`Deletes what is older than its retention: published rows of the outbox (outbox.retention), journal rows
(journal.retention) and dead letters that were replayed or discarded (dlq.retention). It deletes only what is journaled
or resolved and lies below the confirmed position that the relay has saved, whether the relay is running or not. A
running relay does the same by itself, a little at a time.

Examples:

  cdc-relay cleanup --config relay.yaml --dry-run

  cdc-relay cleanup --config relay.yaml --outbox-retention 24h`, c.Run)
	f := cmd.Flags()
	f.BoolVar(&c.DryRun, "dry-run", false, "Count the rows to delete; delete nothing.")
	f.IntVar(&c.Batch, "batch", 1000, "Rows deleted in one transaction, about.")
	f.DurationVar(&c.Pause, "pause", 20*time.Millisecond, "Pause between two transactions.")
	c.Outbox.AddTo(cmd)
	return cmd
}

// cleaned counts deleted rows or, in a dry run, the most that could be deleted.
type cleaned struct {
	DryRun  bool     `json:"dry_run"`
	Outbox  int64    `json:"outbox_rows"`
	Journal int64    `json:"journal_rows"`
	Dead    int64    `json:"dead_letters"`
	Notes   []string `json:"notes"`
}

// Run deletes in small steps until nothing more is due.
func (c *cleanupCommand) Run(a *cli.App) error {
	a.AtLeast("--batch", c.Batch, 1)
	a.NotShorter("--pause", c.Pause, 0)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.OpenOne(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	spooled, err := st.Spooled(ctx)
	if err != nil {
		return err
	}
	cl := cleaner{store: st, spooled: spooled.Events, batch: c.Batch, pause: c.Pause, tell: a.Progress()}
	rows, err := cl.due(ctx, cfg)
	if err != nil {
		return err
	}
	if !c.DryRun {
		rows, err = cl.run(ctx, cfg, rows)
	}
	result := cleaned{DryRun: c.DryRun, Outbox: rows.Outbox, Journal: rows.Journal, Dead: rows.Dead, Notes: kept(cfg)}
	if spooled.Events > 0 {
		result.Notes = append(result.Notes, fmt.Sprintf("%d events are stored in cdc_relay_spool: journal rows and "+
			"dead letters are kept until they are sent", spooled.Events))
	}
	if !a.JSON {
		result.print(a)
	} else if printed := a.PrintJSON(result); err == nil {
		err = printed
	}
	return err
}

// kept says what the configuration keeps.
func kept(c config.Config) []string {
	notes := []string{}
	if c.Outbox.AfterPublish != config.AfterPublishDelete && c.Outbox.Retention == 0 {
		notes = append(notes, "outbox.retention is 0s and outbox.after_publish is "+c.Outbox.AfterPublish+
			": rows of the outbox are kept")
	}
	if c.DLQ.Retention == 0 {
		notes = append(notes, "dlq.retention is 0s: dead letters are kept")
	}
	return notes
}

func (r cleaned) print(a *cli.App) {
	verb := "deleted"
	if r.DryRun {
		verb = "would delete, at most"
	}
	cli.Fprintf(a.Out, "%s:\n  %d outbox rows\n  %d journal rows\n  %d dead letters\n", verb, r.Outbox, r.Journal, r.Dead)
	for _, note := range r.Notes {
		cli.Fprintln(a.Out, "note: "+note)
	}
}
