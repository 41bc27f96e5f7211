package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
)

type cleanupCommand struct {
	DryRun bool          `help:"Count what could go and delete nothing." env:"CDC_RELAY_CLEANUP_DRY_RUN"`
	Batch  int           `help:"Rows deleted in one transaction, about." default:"1000" env:"CDC_RELAY_CLEANUP_BATCH"`
	Pause  time.Duration `help:"Pause between two transactions." default:"20ms" env:"CDC_RELAY_CLEANUP_PAUSE"`
}

func (cleanupCommand) Help() string {
	return "Deletes what is older than its retention: published rows of the outbox (outbox.retention), rows of the journal (journal.retention) and dead letters that were replayed or discarded (dlq.retention). Only what is journaled or resolved and lies below the confirmed position that the relay has saved is deleted, whether the relay runs or not; it does the same by itself, a little at a time.\n\nExamples:\n\n  cdc-relay cleanup --config relay.yaml --dry-run\n\n  cdc-relay cleanup --config relay.yaml --outbox-retention 24h"
}

// cleaned is what was deleted or, in a dry run, could be at most.
type cleaned struct {
	DryRun  bool     `json:"dry_run"`
	Outbox  int64    `json:"outbox_rows"`
	Journal int64    `json:"journal_rows"`
	Dead    int64    `json:"dead_letters"`
	Notes   []string `json:"notes"`
}

// Run deletes in small steps until nothing more is due.
func (c cleanupCommand) Run(a *app) error {
	a.atLeast("--batch", c.Batch, 1)
	a.notShorter("--pause", c.Pause, 0)
	cfg, err := a.load(needsPostgres)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	outbox, journal, dead := time.Duration(cfg.Outbox.Retention), time.Duration(cfg.Journal.Retention), time.Duration(cfg.DLQ.Retention)
	could, err := st.Cleanable(ctx, outbox, journal, dead)
	if err != nil {
		return err
	}
	result := cleaned{DryRun: c.DryRun, Outbox: could.Outbox, Journal: could.Journal, Dead: could.Dead, Notes: cleanupNotes(cfg)}
	if !c.DryRun {
		result.Outbox, result.Journal, result.Dead = 0, 0, 0
		steps := []cleanupStep{
			{"outbox rows", could.Outbox, &result.Outbox, func() (int, bool, error) { return st.DeleteStep(ctx, outbox, c.Batch) }},
			{"journal rows", could.Journal, &result.Journal, func() (int, bool, error) { return st.Prune(ctx, journal, c.Batch) }},
		}
		if dead > 0 {
			steps = append(steps, cleanupStep{"dead letters", could.Dead, &result.Dead, func() (int, bool, error) { return st.PruneDead(ctx, dead, c.Batch) }})
		}
		err = c.clean(ctx, steps, a.progress())
	}
	if a.cli.JSON {
		if printed := a.printJSON(result); err == nil {
			err = printed
		}
		return err
	}
	a.printCleaned(result)
	return err
}

type cleanupStep struct {
	what  string
	about int64
	done  *int64
	step  func() (rows int, more bool, err error)
}

// clean runs the steps one after the other. A lock that somebody holds is waited for, for as long as the person likes.
func (c cleanupCommand) clean(ctx context.Context, steps []cleanupStep, tell func(string)) error {
	defer tell("")
	for _, s := range steps {
		for more := true; more; {
			rows, again, err := s.step()
			if err != nil && !store.IsTransient(err) {
				return err
			}
			more = again || err != nil
			*s.done += int64(rows)
			tell(fmt.Sprintf("%s: %d of about %d", s.what, *s.done, max(s.about, *s.done)))
			select {
			case <-time.After(c.Pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// cleanupNotes say what the configuration keeps.
func cleanupNotes(c config.Config) []string {
	notes := []string{}
	if c.Outbox.AfterPublish != config.AfterPublishDelete && c.Outbox.Retention == 0 {
		notes = append(notes, "outbox.retention is 0s and outbox.after_publish is "+c.Outbox.AfterPublish+": rows of the outbox are kept")
	}
	if c.DLQ.Retention == 0 {
		notes = append(notes, "dlq.retention is 0s: dead letters are kept")
	}
	return notes
}

func (a *app) printCleaned(r cleaned) {
	verb := "deleted"
	if r.DryRun {
		verb = "would delete, at most"
	}
	fmt.Fprintf(a.out, "%s:\n  %d outbox rows\n  %d journal rows\n  %d dead letters\n", verb, r.Outbox, r.Journal, r.Dead)
	for _, note := range r.Notes {
		fmt.Fprintln(a.out, "note: "+note)
	}
}
