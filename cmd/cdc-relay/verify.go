package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
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
	Repair bool          `help:"Have the relay publish once more what the topics have lost." env:"CDC_RELAY_VERIFY_REPAIR"`
	Yes    bool          `help:"Do not ask before a repair." env:"CDC_RELAY_VERIFY_YES"`
	Note   string        `help:"Why a repair is asked for; it is kept with the request." placeholder:"TEXT" env:"CDC_RELAY_VERIFY_NOTE"`
	Temp   string        `help:"Where temporary files go, about 220 bytes for each row; by default the system's directory for them." placeholder:"DIR" env:"CDC_RELAY_VERIFY_TEMP"`
}

func (verifyCommand) Help() string {
	return `Reads the rows of the outbox table, or a range of them, then the topics from their beginning, and compares: missing, duplicated, out of order (per key, in the table's order), different bytes, key or topic. Dead letters and parked events are in no topic and are counted apart, as are rows that were published before the journal knows of them, and rows whose message a topic's retention or compaction has removed. Partitions are read side by side, and what is compared goes through temporary files: memory does not grow with the table.

Lost are rows that the journal has at a place which the topic must still hold and does not: a topic that was deleted and made anew, an unclean election of a leader, a disk. With --repair the relay that holds the slot publishes them once more, with the header x-outbox-replay, at once when it runs and later when it does not. Among themselves they keep the order of their keys; what their keys have in the topics by now stays in front of them, and newer events may come in between. It asks first; without a terminal it needs --yes. Rows without a known place, and what retention has removed, are never repaired.

Times are RFC 3339 or an age such as 24h. Exit code 1 when something is missing or has different bytes. Rows of concurrent transactions can be committed in another order than the table's, so a few out of order are not proof of a fault.

Examples:

  cdc-relay verify --config relay.yaml

  cdc-relay verify --config relay.yaml --since 24h --until 5m --json

  cdc-relay verify --config relay.yaml --repair --note "topic made anew"`
}

// verdict is the outcome of an audit.
type verdict struct {
	Rows        int                         `json:"rows"`     // of the range
	Expected    int                         `json:"expected"` // of them, those that must be in a topic
	Records     int                         `json:"records"`  // read from the topics
	Missing     int                         `json:"missing"`  // pending included
	Pending     int                         `json:"pending"`  // missing, and the relay's own tables do not call them published
	Lost        int                         `json:"lost"`     // missing, though the journal has a place for them that the topic must still hold
	Duplicated  int                         `json:"duplicated"`
	OutOfOrder  int                         `json:"out_of_order"`
	Different   int                         `json:"different"` // value, key or topic
	Misplaced   int                         `json:"misplaced"` // in a topic, but not where the journal has them
	Parked      int                         `json:"parked"`
	Dead        int                         `json:"dead"`
	Unjudged    int                         `json:"unjudged"` // published without a known place: before the first start, or pruned from the journal
	Expired     int                         `json:"expired"`  // removed by the topic's retention or compaction
	Others      int                         `json:"others"`   // records of no row in the range
	Examples    map[verify.Finding][]string `json:"examples,omitempty"`
	Notes       []string                    `json:"notes,omitempty"`
	MissingRows []string                    `json:"missing_ids,omitempty"` // the first of those that are missing
	Repaired    *int64                      `json:"repaired,omitempty"`    // published once more, when that was asked for
}

// Run compares the table with the topics.
func (c verifyCommand) Run(a *app) error {
	wanted := c.wantedRows(a, time.Now())
	a.notShorter("--wait", c.Wait, 0)
	cfg, err := a.load(needsBoth)
	if err != nil {
		return err
	}
	if cfg.Sink != config.SinkKafka {
		return usageError{fmt.Errorf("verify compares the table with topics, and sink is %s, which has none: set sink to %s", cfg.Sink, config.SinkKafka)}
	}
	if (wanted.Since != nil || wanted.Until != nil) && cfg.Outbox.Columns.CreatedAt == "" {
		return usageError{errors.New("--since and --until need outbox.columns.created_at, which is empty")}
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	var repair repairing
	if c.Repair {
		if !c.Yes && !isTerminal(os.Stdin) {
			return usageError{errors.New("--repair publishes again what was lost, and nobody can be asked here: give --yes if that is wanted")}
		}
		repair = func(ctx context.Context, st *store.Store, auditor *verify.Auditor, v *verdict) error {
			return c.repair(ctx, a, st, auditor, v)
		}
	}
	v, err := c.audit(ctx, cfg, wanted, a.progress(), repair)
	if errors.Is(err, store.ErrFilter) {
		return usageError{fmt.Errorf("--from-id, --to-id: %w", err)}
	}
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
	if err == nil && (v.left() > 0 || v.Different > 0) {
		err = silentError{exitFailed}
	}
	return err
}

// left is how many rows are missing after all.
func (v *verdict) left() int64 {
	if v.Repaired == nil {
		return int64(v.Missing)
	}
	return int64(v.Missing) - *v.Repaired
}

const undefinedTable = "42P01" // SQLSTATE

// wantedRows notes what is wrong with the flags.
func (c verifyCommand) wantedRows(a *app, now time.Time) store.AuditRange {
	w := store.AuditRange{FromID: c.FromID, ToID: c.ToID}
	for _, bound := range []struct {
		flag, text string
		into       **time.Time
	}{{"--since", c.Since, &w.Since}, {"--until", c.Until, &w.Until}} {
		if bound.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			age, ageErr := time.ParseDuration(bound.text)
			if ageErr != nil {
				a.wrong(bound.flag, fmt.Sprintf("found %q", bound.text), "a time such as 2026-01-31T12:00:00Z, or an age such as 24h")
				continue
			}
			at = now.Add(-age)
		}
		*bound.into = &at
	}
	return w
}

const lookAgain = 250 * time.Millisecond // pause between two looks for rows that are still to be published

// repairing mends what was lost, and notes it in the verdict.
type repairing func(context.Context, *store.Store, *verify.Auditor, *verdict) error

// audit reads the truth, then what the topics hold, lets the auditor compare, and has repaired what was lost; nil leaves it.
func (c verifyCommand) audit(ctx context.Context, cfg config.Config, wanted store.AuditRange, tell func(string), repair repairing) (v *verdict, err error) {
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
	auditor, err := verify.NewAuditor(c.Temp)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, auditor.Close()) }()
	t := &truth{auditor: auditor, reader: reader, tell: tell}
	if err := t.read(ctx, cfg, st, wanted); err != nil {
		return nil, err
	}
	if err := t.watch(ctx, c.Wait); err != nil {
		return nil, err
	}
	found, err := auditor.Finish(reader.why, func(done int) { tell(fmt.Sprintf("comparing: %d %%", done*100/256)) })
	tell("")
	if err != nil {
		return nil, err
	}
	v = verdictOn(found, reader.said())
	if repair != nil && v.Lost > 0 {
		err = repair(ctx, st, auditor, v)
	}
	return v, err
}

// watch reads the topics, and goes on for as long as rows are awaited that nothing is recorded of.
func (t *truth) watch(ctx context.Context, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		if err := t.reader.readOn(ctx, t); err != nil {
			return err
		}
		left, tooMany := t.pending.left()
		if tooMany {
			t.reader.notes = append(t.reader.notes, fmt.Sprintf("more than %d rows are not published yet: they were not waited for", pendingMost))
		}
		if left == 0 || tooMany || !time.Now().Before(deadline) {
			return t.reader.beginnings(ctx)
		}
		t.tell(fmt.Sprintf("waiting for %d rows that are not published yet", left))
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func verdictOn(f verify.Audited, notes []string) *verdict {
	slices.Sort(f.IDs)
	return &verdict{
		Rows: f.Rows, Expected: f.Expected, Records: f.Records, Missing: f.Missing, Pending: f.Pending, Lost: f.Lost,
		Duplicated: f.Duplicated, OutOfOrder: f.OutOfOrder, Different: f.Different, Misplaced: f.Misplaced, Parked: f.Parked, Dead: f.Dead,
		Unjudged: f.Unjudged, Expired: f.Expired, Others: f.Others, Examples: f.Examples, Notes: notes, MissingRows: f.IDs,
	}
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
	count("missing", v.Missing, red, fmt.Sprintf("%d of them not published yet, by the relay's own tables; %d lost by the topics", v.Pending, v.Lost))
	if v.Repaired != nil {
		count("repaired", int(*v.Repaired), green, "published once more, with the header x-outbox-replay")
	} else if v.Lost > 0 {
		fmt.Fprintln(a.out, "               --repair has the relay publish once more what the topics have lost")
	}
	count("different", v.Different, red, "value, key or topic")
	count("duplicated", v.Duplicated, yellow, "")
	count("out of order", v.OutOfOrder, yellow, "per key, in the table's order")
	count("misplaced", v.Misplaced, yellow, "in a topic, but not where the journal has them")
	count("parked", v.Parked, yellow, "wait for a retry")
	count("dead", v.Dead, yellow, "dead letters")
	count("not judged", v.Unjudged, faint, "published without a journal row: before the first start, or pruned")
	count("expired", v.Expired, faint, "removed by the topic's retention or compaction")
	count("other records", v.Others, faint, "of no row in the range")
	for _, kind := range slices.Sorted(maps.Keys(v.Examples)) {
		for _, example := range v.Examples[kind] {
			fmt.Fprintf(a.out, "  %s: %s\n", kind, example)
		}
	}
	for _, note := range v.Notes {
		fmt.Fprintln(a.out, "note: "+note)
	}
}
