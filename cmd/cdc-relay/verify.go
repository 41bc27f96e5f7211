package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

type verifyCommand struct {
	FromID string        `name:"from-id" help:"First id of a range." placeholder:"ID" env:"CDC_RELAY_VERIFY_FROM_ID"`
	ToID   string        `name:"to-id" help:"Last id of a range." placeholder:"ID" env:"CDC_RELAY_VERIFY_TO_ID"`
	Since  string        `help:"Rows created at or after this time." placeholder:"TIME|AGE" env:"CDC_RELAY_VERIFY_SINCE"`
	Until  string        `help:"Rows created before this time." placeholder:"TIME|AGE" env:"CDC_RELAY_VERIFY_UNTIL"`
	Wait   time.Duration `help:"How long to wait for rows that the relay has not published yet." default:"10s" env:"CDC_RELAY_VERIFY_WAIT"`
}

func (verifyCommand) Help() string {
	return `Reads the rows of the outbox table, or a range of them, then the topics from their beginning, and compares: missing, duplicated, out of order (per key, in the table's order), different bytes, key or topic. Dead letters and parked events are in no topic and are counted apart, as are rows that were published before the journal knows of them, and rows whose message a topic's retention has removed.

Times are RFC 3339 or an age such as 24h. Exit code 1 when something is missing or has different bytes. Rows of concurrent transactions can be committed in another order than the table's, so a few out of order are not proof of a fault.

Examples:

  cdc-relay verify --config relay.yaml

  cdc-relay verify --config relay.yaml --since 24h --until 5m --json`
}

// verdict is the outcome of an audit.
type verdict struct {
	Rows        int                 `json:"rows"`     // of the range
	Expected    int                 `json:"expected"` // of them, those that must be in a topic
	Records     int                 `json:"records"`  // read from the topics
	Missing     int                 `json:"missing"`  // pending included
	Pending     int                 `json:"pending"`  // missing, and the relay's own tables do not call them published
	Duplicated  int                 `json:"duplicated"`
	OutOfOrder  int                 `json:"out_of_order"`
	Different   int                 `json:"different"` // value, key or topic
	Parked      int                 `json:"parked"`
	Dead        int                 `json:"dead"`
	Unjudged    int                 `json:"unjudged"` // published without a known place: before the first start, or pruned from the journal
	Expired     int                 `json:"expired"`  // removed by the topic's retention
	Others      int                 `json:"others"`   // records of no row in the range
	Examples    map[string][]string `json:"examples,omitempty"`
	Notes       []string            `json:"notes,omitempty"`
	MissingRows []string            `json:"missing_ids,omitempty"` // the first of those that are pending
}

// Run compares the table with the topics.
func (c verifyCommand) Run(a *app) error {
	cfg, err := a.load(needsBoth)
	if err != nil {
		return err
	}
	if cfg.Sink != config.SinkKafka {
		return usageError{fmt.Errorf("verify compares the table with topics, and sink is %s, which has none: set sink to %s", cfg.Sink, config.SinkKafka)}
	}
	wanted, err := c.wantedRows(time.Now())
	if err == nil && (wanted.since != nil || wanted.until != nil) && cfg.Outbox.Columns.CreatedAt == "" {
		err = errors.New("--since and --until need outbox.columns.created_at, which is empty")
	}
	if err != nil {
		return usageError{err}
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	v, err := c.audit(ctx, cfg, wanted, a.progress())
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		return fmt.Errorf("%w: cdc-relay init creates it", err)
	}
	if err != nil {
		return err
	}
	if a.cli.JSON {
		err = a.printJSON(v)
	} else {
		a.printVerdict(v)
	}
	if err == nil && (v.Missing > 0 || v.Different > 0) {
		err = silentError{exitFailed}
	}
	return err
}

const undefinedTable = "42P01" // SQLSTATE

// wantedRows are the bounds of an audit; nil and empty mean no bound.
type wantedRows struct {
	fromID, toID string
	since, until *time.Time
}

func (c verifyCommand) wantedRows(now time.Time) (wantedRows, error) {
	w := wantedRows{fromID: c.FromID, toID: c.ToID}
	var errs []error
	for _, bound := range []struct {
		flag, text string
		into       **time.Time
	}{{"--since", c.Since, &w.since}, {"--until", c.Until, &w.until}} {
		if bound.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			age, ageErr := time.ParseDuration(bound.text)
			if ageErr != nil {
				errs = append(errs, fmt.Errorf("%s: found %q; allowed: a time such as 2026-01-31T12:00:00Z, or an age such as 24h", bound.flag, bound.text))
				continue
			}
			at = now.Add(-age)
		}
		*bound.into = &at
	}
	return w, errors.Join(errs...)
}

const lookAgain = 250 * time.Millisecond // pause between two looks for rows that are still to be published

// audit reads the truth, then what the topics hold, and lets the judge compare.
func (c verifyCommand) audit(ctx context.Context, cfg config.Config, wanted wantedRows, tell func(string)) (*verdict, error) {
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	reader, err := newTopicReader(ctx, cfg, st)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	t := &truth{judge: verify.New(nil), pending: map[string]struct{}{}, offsets: reader, verdict: &verdict{}, tell: tell}
	if err := t.read(ctx, cfg, st, wanted); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.Wait)
	for {
		if err := reader.readOn(ctx, t); err != nil {
			return nil, err
		}
		if len(t.pending) == 0 || !time.Now().Before(deadline) {
			break
		}
		tell(fmt.Sprintf("waiting for %d rows that are not published yet", len(t.pending)))
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	tell("")
	return t.finish(), nil
}

// finish turns the judge's report into the verdict.
func (t *truth) finish() *verdict {
	r, v := t.judge.Report(), t.verdict
	v.Records, v.Missing, v.Pending = r.Seen, r.Counts[verify.Missing], len(t.pending)
	v.Expected = r.Expected - v.Parked - v.Dead
	v.Duplicated, v.OutOfOrder = r.Counts[verify.Duplicated], r.Counts[verify.Reordered]
	v.Different = r.Counts[verify.BytesDiffer] + r.Counts[verify.KeyDiffers] + r.Counts[verify.WrongTopic]
	v.Others = r.Counts[verify.Unexpected]
	v.Notes = t.offsets.said()
	v.Examples = map[string][]string{}
	for kind, examples := range r.Examples {
		if kind != verify.Unexpected {
			v.Examples[string(kind)] = examples
		}
	}
	for id := range t.pending {
		v.MissingRows = append(v.MissingRows, id)
	}
	slices.Sort(v.MissingRows)
	const listed = 100
	v.MissingRows = v.MissingRows[:min(len(v.MissingRows), listed)]
	return v
}

// progress gives a function that shows one line in place on a terminal; the empty line clears it.
func (a *app) progress() func(string) {
	if a.cli.JSON || !isTerminal(a.err) {
		return func(string) {}
	}
	return func(line string) { fmt.Fprintf(a.err, "\r\x1b[K%s", line) }
}

func (a *app) printVerdict(v *verdict) {
	count := func(name string, n int, colour, note string) {
		text := fmt.Sprintf("%-14s %d", name, n)
		if n > 0 && colour != "" {
			text = a.paint(colour, text)
		}
		if n > 0 && note != "" {
			text += "  " + note
		}
		fmt.Fprintln(a.out, text)
	}
	count("rows", v.Rows, "", "")
	count("expected", v.Expected, "", "")
	count("records", v.Records, "", "")
	count("missing", v.Missing, red, fmt.Sprintf("%d of them not published yet, by the relay's own tables", v.Pending))
	count("different", v.Different, red, "value, key or topic")
	count("duplicated", v.Duplicated, yellow, "")
	count("out of order", v.OutOfOrder, yellow, "per key, in the table's order")
	count("parked", v.Parked, yellow, "wait for a retry")
	count("dead", v.Dead, yellow, "dead letters")
	count("not judged", v.Unjudged, faint, "published without a journal row: before the first start, or pruned")
	count("expired", v.Expired, faint, "removed by the topic's retention")
	count("other records", v.Others, faint, "of no row in the range")
	for _, kind := range sortedNames(v.Examples) {
		for _, example := range v.Examples[kind] {
			fmt.Fprintf(a.out, "  %s: %s\n", kind, example)
		}
	}
	for _, note := range v.Notes {
		fmt.Fprintln(a.out, "note: "+note)
	}
}
