package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	editPortion   = 100 // dead letters that one transaction changes
	mostRefusals  = 20  // that are listed for people; JSON has all
	editedAllHint = "run the same command again for the rest"
)

// dlqEditAll is the flags of an edit of all dead letters that are chosen.
type dlqEditAll struct {
	MergePayload, MergeHeaders string
	DryRun, Yes                bool
}

func (c *dlqEditAll) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.MergePayload, Shown: "JSON", NotEmpty: true}, "merge-payload",
		"Members to set in each payload, which must be a JSON object; null removes one (RFC 7396).")
	f.Var(&cli.TextFlag{Into: &c.MergeHeaders, Shown: "JSON", NotEmpty: true}, "merge-headers",
		"Headers to set; null removes one.")
	f.BoolVar(&c.DryRun, "dry-run", false, "Only print how many match, and what the first would become.")
	f.BoolVar(&c.Yes, "yes", false, "Do not ask for confirmation.")
}

// ofOne reports whether one dead letter is named and nothing else, whose edit may be any.
func (c *dlqEditCommand) ofOne() bool {
	rest := c.Choose
	rest.IDs, rest.Outbox = nil, ask.Outbox{}
	return len(c.IDs) == 1 && !c.All.All && !c.DryRun && fmt.Sprint(rest) == fmt.Sprint(ask.Choose{})
}

func (c *dlqEditCommand) merges() bool { return c.MergePayload != "" || c.MergeHeaders != "" }

// editedAll is the result of an edit. Names in JSON are stable.
type editedAll struct {
	Matching  int64              `json:"matching"`
	Edited    int                `json:"edited"`
	Unchanged int                `json:"unchanged"` // what the edit asks for they send already
	Refused   []store.NotPatched `json:"refused,omitempty"`
	Requests  []int64            `json:"requests,omitempty"` // of the replays
}

// wanted holds what the flags ask for.
func (c *dlqEditCommand) wanted(a *cli.App) (store.EditAll, error) {
	e := store.EditAll{Filter: c.Filter(a), Who: c.Name(), Note: c.Note, Replay: !c.NoReplay,
		Patch: store.Patch{Tombstone: c.Tombstone, Payload: given(c.MergePayload), Headers: given(c.MergeHeaders)}}
	if e.Filter.Criteria() == "" && !c.merges() && !c.Tombstone {
		return e, cli.Usage(errors.New("nothing is chosen: name a dead letter by its id, or give --merge-payload, " +
			"--merge-headers or --tombstone with ids, filters or --all"))
	}
	if c.PayloadFile != "" || c.HeadersFile != "" || e.Patch.Check() != nil && !c.merges() {
		return e, cli.Usage(errors.New("more than one dead letter may be chosen: give --merge-payload, --merge-headers or " +
			"--tombstone; an editor, --payload-file and --headers-file are for one that is named by its id"))
	}
	if err := e.Patch.Check(); err != nil {
		return e, cli.Usage(err)
	}
	return e, nil
}

// runAll changes all that is chosen, in portions, and asks for the replay of what it has changed.
func (c *dlqEditCommand) runAll(a *cli.App) error {
	e, err := c.wanted(a)
	if err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.OpenOne(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	var done editedAll
	n, at, err := st.CountUntil(ctx, store.RequestDiscard, e.Filter)
	if err != nil {
		return ask.BadFilter(err)
	}
	done.Matching, e.Filter.Until = n, &at // what dies while a person thinks is not meant
	if c.DryRun {
		return c.preview(ctx, a, st, e, n)
	}
	if n > 0 {
		also := map[bool]string{true: " and replays those that it changes", false: ""}[e.Replay]
		if err := a.Confirm(c.Yes, "edit", fmt.Sprintf("This edits %d dead letters%s.", n, also)); err != nil {
			return err
		}
	}
	if err := done.run(ctx, a, st, e); err != nil {
		return fmt.Errorf("%w; %d of %d dead letters are edited%s: %s", err, done.Edited, n,
			map[bool]string{true: ", and queued for their replay", false: ""}[e.Replay], editedAllHint)
	}
	err = done.tell(a)
	if err == nil && len(done.Requests) > 0 && !a.JSON {
		err = ask.AwaitAll(ctx, a, st, cfg.Postgres.Slot, c.Flags, done.Requests)
	}
	switch {
	case err != nil:
		return err
	case len(done.Refused) > 0:
		return cli.ErrFailed
	case n < int64(len(c.IDs)):
		return fmt.Errorf("%d of the ids are not those of open dead letters: cdc-relay find ID%s tells of each",
			int64(len(c.IDs))-n, store.OutboxFlag(c.Of))
	}
	return nil
}

// run makes the edit, portion by portion.
func (d *editedAll) run(ctx context.Context, a *cli.App, st *store.Store, e store.EditAll) error {
	bar := cli.NewBar(a)
	defer bar.End()
	var at store.DeadCursor
	for seen := 0; ; {
		step, err := st.EditAll(ctx, e, at, editPortion)
		if err != nil || step.Seen == 0 {
			return err
		}
		at = step.Next
		d.Edited += step.Edited
		d.Unchanged += step.Seen - step.Edited - len(step.Refused)
		d.Refused = append(d.Refused, step.Refused...)
		if step.Request > 0 {
			d.Requests = append(d.Requests, step.Request)
		}
		seen += step.Seen
		bar.Show(int64(seen), d.Matching)
	}
}

func (d *editedAll) tell(a *cli.App) error {
	if a.JSON {
		return a.PrintJSON(d)
	}
	if d.Matching == 0 {
		cli.Fprintln(a.Out, "no dead letters match; nothing was edited")
		return nil
	}
	cli.Fprintf(a.Out, "edit: %d of %d dead letters edited", d.Edited, d.Matching)
	if d.Unchanged > 0 {
		cli.Fprintf(a.Out, ", %d were like this already", d.Unchanged)
	}
	if len(d.Refused) > 0 {
		cli.Fprintf(a.Out, ", %d cannot be changed like this", len(d.Refused))
	}
	cli.Fprintln(a.Out)
	for _, r := range d.Refused[:min(len(d.Refused), mostRefusals)] {
		cli.Fprintf(a.Out, "  %s  %s\n", cli.Plain(r.ID), cli.Plain(r.Why))
	}
	if more := len(d.Refused) - mostRefusals; more > 0 {
		cli.Fprintf(a.Out, "  and %d more: --json has all\n", more)
	}
	return nil
}

// preview shows what the edit would make of the newest dead letter that matches.
func (c *dlqEditCommand) preview(ctx context.Context, a *cli.App, st *store.Store, e store.EditAll, n int64) error {
	page, err := st.DeadLetters(ctx, e.Filter, store.DeadOpen, "", 1)
	switch {
	case err != nil:
		return ask.BadFilter(err)
	case len(page.Items) == 0:
		return (&editedAll{Matching: n}).tell(a)
	}
	d, err := st.DeadLetter(ctx, page.Items[0].ID)
	if err != nil {
		return err
	}
	payload, headers, changed, err := e.Patch.Apply(d.Payload, d.Headers)
	if err != nil {
		return fmt.Errorf("%d dead letters match; the newest, %s: %w", n, cli.Plain(d.ID), err)
	}
	shown, _ := store.ShownPayload(payload)
	if a.JSON {
		return a.PrintJSON(map[string]any{"matching": n, "id": d.ID, "changed": changed, "payload": shown,
			"headers": string(headers)})
	}
	cli.Fprintf(a.Out,
		"%d dead letters match; nothing was edited. The newest, %s, would send\n  payload  %s\n  headers  %s\n", n,
		cli.Plain(d.ID), cli.Plain(string(payload)), cli.Plain(string(headers)))
	return nil
}

// given is a flag's text as bytes; nil: it was not given.
func given(text string) []byte {
	if text == "" {
		return nil
	}
	return []byte(text)
}
