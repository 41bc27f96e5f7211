package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify/audit"
	"github.com/cdc-relay/cdc-relay/verify/effects"
)

type verifyCommand struct {
	FromID string        `name:"from-id" help:"First id of a range." placeholder:"ID" empty:"no"`
	ToID   string        `name:"to-id" help:"Last id of a range." placeholder:"ID" empty:"no"`
	Since  string        `help:"Rows created at or after this time." placeholder:"TIME|AGE" empty:"no"`
	Until  string        `help:"Rows created before this time." placeholder:"TIME|AGE" empty:"no"`
	Wait   time.Duration `help:"How long to wait for rows that the relay has not published yet." default:"10s"`
	Repair bool          `help:"Have the relay publish again what the topics have lost."`
	Yes    bool          `help:"Do not ask for confirmation before a repair."`
	Note   string        `help:"Why a repair is needed; it is kept with the request." placeholder:"TEXT"`
	Temp   string        `help:"Where temporary files go, about 220 bytes per row; default: the system's temporary directory." placeholder:"DIR"`

	Consumer  string        `help:"Compare with what this consumer's inbox has done, and not with the topics." placeholder:"NAME" empty:"no"`
	InboxKeep time.Duration `name:"inbox-keep" help:"For how long the consumer keeps ids: what is older and unknown is forgotten, not missing." default:"336h"`
}

const undefinedTable = "42P01" // SQLSTATE

// Run compares the table with the topics.
func (c verifyCommand) Run(a *cli.App) error {
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
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
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

// timed refuses bounds of time where rows have none.
func timed(cfg config.Config, rows store.AuditRange) error {
	if (rows.Since != nil || rows.Until != nil) && cfg.Outbox.Columns.CreatedAt == "" {
		return cli.Usage(errors.New("--since and --until need outbox.columns.created_at, which is empty"))
	}
	return nil
}

// effects compares the table with a consumer's inbox.
func (c verifyCommand) effects(a *cli.App, rows store.AuditRange) error {
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
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
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
func (c verifyCommand) repair(a *cli.App, st *store.Store, found *audit.Verdict) (*audit.Repair, error) {
	if !c.Yes && !a.JSON {
		show.Verdict(a, found)
	}
	what := fmt.Sprintf("This publishes %d events once more, behind what their keys have in the topics by now.",
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
