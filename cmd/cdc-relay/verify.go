package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/effects"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

type verifyCommand struct {
	ask.Outbox
	FromID, ToID, Since, Until string
	Wait                       time.Duration
	Repair, Yes                bool
	Note, Temp, Consumer       string
	InboxKeep                  time.Duration
}

func (c *verifyCommand) command() *cobra.Command {
	cmd := cli.Command("verify", "Compare the outbox table with the topics.",
		`Reads the outbox table, or a range of it, then the topics from their beginning, and compares: missing,
duplicated, out of order (per key, in the table's order), different bytes, key or topic. Dead letters and parked events
are in no topic and are counted apart, as are rows published before the journal began, and rows whose message a topic's
retention or compaction has removed. Partitions are read in parallel, and the comparison uses temporary files: memory
does not grow with the table.

A row is lost if the journal has it at a place that the topic must still hold and does not: the topic was deleted and
created again, an unclean leader was elected, a disk failed. With --repair the relay on the slot publishes lost rows
again, with the header x-outbox-replay; if none is running, the next one to start does. They keep their order per key
among themselves, but come after what their keys have in the topics by now. The command asks for confirmation; without
a terminal it needs --yes. Rows without a known place, and rows that retention removed, are never repaired.

It reads Kafka, JetStream, and the streams of Redis and RabbitMQ. What RabbitMQ's queues, BullMQ and webhooks have
cannot be read back: with these sinks it refuses, with exit code 2, and says where to look.

Times are RFC 3339 or an age such as 24h. Exit code 1 if something is missing or has different bytes. Concurrent
transactions can commit in another order than the table's, so a few rows out of order prove no fault.

With --consumer it goes on to the effect, in SQL alone: of the rows that were published, which has the consumer's inbox
as done, parked, dead or discarded, which has it not come to yet, and which is missing: behind its offset without an
effect. The inbox is the Go package's, or what init --inbox has made. Exit code 1 if one is missing.

Examples:

  cdc-relay verify --config relay.yaml

  cdc-relay verify --config relay.yaml --since 24h --until 5m --json

  cdc-relay verify --config relay.yaml --repair --note "topic created again"

  cdc-relay verify --config relay.yaml --consumer billing --inbox-url postgres://billing@db/billing`, c.Run)
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.FromID, NotEmpty: true}, "from-id", "First id of a range.")
	f.Var(&cli.TextFlag{Into: &c.ToID, NotEmpty: true}, "to-id", "Last id of a range.")
	f.Var(&cli.TextFlag{Into: &c.Since, Shown: "TIME|AGE", NotEmpty: true}, "since", "Rows created at or after "+
		"this time.")
	f.Var(&cli.TextFlag{Into: &c.Until, Shown: "TIME|AGE", NotEmpty: true}, "until", "Rows created before this time.")
	f.DurationVar(&c.Wait, "wait", 10*time.Second, "How long to wait for rows that the relay has not published yet.")
	f.BoolVar(&c.Repair, "repair", false, "Publish events again that the topics have lost.")
	f.BoolVar(&c.Yes, "yes", false, "Do not ask for confirmation before a repair.")
	f.Var(&cli.TextFlag{Into: &c.Note, Shown: "TEXT"}, "note", "Why a repair is needed; it is kept with the request.")
	f.Var(&cli.TextFlag{Into: &c.Temp, Shown: "DIR"}, "temp", "Where temporary files go, about 230 bytes per row; "+
		"default: the system's temporary directory.")
	f.Var(&cli.TextFlag{Into: &c.Consumer, Shown: "NAME", NotEmpty: true}, "consumer", "Compare with what this "+
		"consumer's inbox has done, and not with the topics.")
	f.DurationVar(&c.InboxKeep, "inbox-keep", 336*time.Hour, "For how long the consumer keeps ids: what is older "+
		"and unknown is forgotten, not missing.")
	c.Outbox.AddTo(cmd)
	return cmd
}

const undefinedTable = "42P01" // SQLSTATE

// errOneUUID is why an inbox cannot be compared with one of several outboxes.
var errOneUUID = errors.New("--consumer: not with outbox.tables and ids that are uuids: an inbox takes a uuid for " +
	"the same event, whichever outbox it is of; without --consumer the topics are compared")

// Run compares the table with the topics.
func (c *verifyCommand) Run(a *cli.App) error {
	rows := c.rows(a, time.Now())
	a.NotShorter("--wait", c.Wait, 0)
	if c.Consumer != "" {
		return c.effects(a, rows)
	}
	cfg, err := a.Load(cli.NeedsBoth)
	if err != nil {
		return err
	}
	if err := audit.Readable(cfg); err != nil {
		return cli.Usage(err)
	}
	if err := timed(cfg, rows); err != nil {
		return err
	}
	if c.Repair && !c.Yes && !cli.CanAsk() {
		return cli.Usage(errors.New("--repair publishes lost events again, and there is no terminal to confirm on: pass " +
			"--yes to go ahead"))
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.open(ctx, a, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	options := audit.Options{Rows: rows, Wait: c.Wait, Temp: c.Temp, Tell: a.Progress()}
	if c.Repair {
		options.Repair = func(found *audit.Verdict) (*audit.Repair, error) { return c.repair(a, st, found) }
	}
	v, err := audit.Run(ctx, cfg, st, options)
	if v == nil {
		return explained(err)
	}
	// A look may have taken an hour: what it found is shown whatever became of the repair.
	if !a.JSON {
		show.Verdict(a, v)
	} else if err := a.PrintJSON(v); err != nil {
		return err
	}
	if err != nil {
		return explained(err)
	}
	if v.Left() > 0 || v.Different > 0 {
		return cli.ErrFailed
	}
	return nil
}

// open opens the tables of the outbox to be verified, of several the one that is named. The configuration is that of
// this outbox.
func (c *verifyCommand) open(ctx context.Context, a *cli.App, cfg config.Config) (*store.Store, config.Config, error) {
	cfg, err := ask.Name(ctx, a.Origin, cfg)
	if err != nil {
		return nil, cfg, err
	}
	st, err := c.OpenNamed(ctx, cfg)
	if err != nil {
		return nil, cfg, err
	}
	if cfg.Outbox.Tables != "" {
		cfg.Outbox.Table = config.JoinTable(st.Table().Schema, st.Table().Name)
	}
	return st, cfg, nil
}

// timed refuses bounds of time where rows have none.
func timed(cfg config.Config, rows store.AuditRange) error {
	if (rows.Since != nil || rows.Until != nil) && cfg.Outbox.Columns.CreatedAt == "" {
		return cli.Usage(errors.New("--since and --until need outbox.columns.created_at, which is empty"))
	}
	return nil
}

// effects compares the table with a consumer's inbox.
func (c *verifyCommand) effects(a *cli.App, rows store.AuditRange) error {
	if c.Repair {
		a.Wrong("--repair", "found it beside --consumer",
			"one of the two: an event that a consumer lacks is not published again")
	}
	cfg, err := a.Load(cli.NeedsPostgres)
	if err != nil {
		return err
	}
	if err := timed(cfg, rows); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	st, cfg, err := c.open(ctx, a, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	if cfg.Outbox.Tables != "" {
		table, err := st.Outbox(ctx)
		if err != nil {
			return err
		}
		if table.IDType == "uuid" {
			return cli.Usage(errOneUUID)
		}
	}
	at := ask.InboxOf(cfg)
	conn, err := store.Connect(ctx, store.Config{URL: at.URL, Password: at.Password})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tell := a.Progress()
	v, err := effects.Run(ctx, st, conn, effects.Options{
		Rows: rows, CreatedAt: cfg.Outbox.Columns.CreatedAt, Consumer: c.Consumer, Schema: at.Schema, Keep: c.InboxKeep,
		Tell: tell,
	})
	tell("")
	if err != nil {
		return explained(err)
	}
	if !a.JSON {
		show.Effects(a, v)
	} else if err := a.PrintJSON(v); err != nil {
		return err
	}
	if v.Missing > 0 {
		return cli.ErrFailed
	}
	return nil
}

// repair asks for confirmation, and follows the requests that are made then. Who is asked sees first what was found.
func (c *verifyCommand) repair(a *cli.App, st *store.Store, found *audit.Verdict) (*audit.Repair, error) {
	if !c.Yes && !a.JSON {
		show.Verdict(a, found)
	}
	what := fmt.Sprintf("This publishes %d events again, behind newer events of their keys.",
		found.Lost)
	if err := a.Confirm(c.Yes, "repair", what); err != nil {
		return nil, err
	}
	follow := func(ctx context.Context, id int64) (*store.Request, error) { return ask.Follow(ctx, a, st, id) }
	return &audit.Repair{Who: cli.UserAtHost(), Note: c.Note, Follow: follow}, nil
}

// explained is the error with what a person can do about it.
func explained(err error) error {
	if errors.Is(err, store.ErrFilter) {
		return cli.Usage(fmt.Errorf("--from-id, --to-id: %w", err))
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == undefinedTable {
		creates := "cdc-relay init"
		if strings.Contains(pg.Message, "inbox_") {
			creates = "the Go package inbox, or cdc-relay init --inbox, in the database of inbox.url,"
		}
		return fmt.Errorf("%w: %s creates it", err, creates)
	}
	return err
}

// rows are those that the flags choose; it notes what is wrong with the flags.
func (c verifyCommand) rows(a *cli.App, now time.Time) store.AuditRange {
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
			age, ageErr := store.ParseAge(bound.text)
			if ageErr != nil {
				a.Wrong(bound.flag, fmt.Sprintf("found %q", bound.text),
					"a time such as 2026-01-31T12:00:00Z, or an age above zero such as 90s, 24h or 7d")
				continue
			}
			at = now.Add(-time.Duration(age))
		}
		*bound.into = &at
	}
	if w.Since != nil && w.Until != nil && !w.Since.Before(*w.Until) {
		a.Wrong("--until", fmt.Sprintf("found %q, and --since %q", c.Until, c.Since),
			"a later time: no row is between the two")
	}
	return w
}
