package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/show"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install/inbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

type initCommand struct {
	DryRun, NoSlot, Roles bool
	Stream, SQL           string
	Emit                  bool
	Inbox                 string
	Rabbit                bool
	Timeout               time.Duration
}

func (c *initCommand) command() *cobra.Command {
	cmd := cli.Command("init", "Create what is missing: tables, view, publication, slot.",
		`No outbox table yet? init creates one. It also creates the relay's own tables and view, the publication and,
last, the replication slot. Run it again at any time: it leaves alone what exists, and a newer version adds what it
needs.

--no-slot creates everything but the slot, for a table that another worker still publishes from: the first start of run
then creates the slot. --roles also creates two roles with exactly the grants that run needs; set their passwords
yourself.

--emit also creates the SQL function emit, with which applications in any language write an event in one call; a newer
version replaces it. Its owner is the role that runs init, which needs INSERT on the outbox.

--rabbitmq-topology creates what consumers of sink rabbitmq need. For each consumer of rabbitmq.consumers: its
exchanges, a queue of its name bound with the keys of bind, a retry queue for each pause, from which messages come back
to the consumer's queue, and a dead-letter queue, <name>.dlq. Without rabbitmq.consumers: the exchange that
message.topic names, one work queue with everything, retry queues of 1, 5 and 15 minutes, and a dead-letter queue. All
queues are of quorum type. With single_active: true a consumer's queue is delivered to one process at a time, which
keeps the order of keys. What exists with the same settings is left alone; if something differs, the command names the
difference and creates nothing. The user needs the permission to configure these names, which the relay itself doesn't
need.

--inbox is for a consumer's database: it creates the inbox there, and nothing else. Consumers in Go need no init: the
package makes its tables itself.

Examples:

  cdc-relay init --dry-run --postgres-url postgres://postgres@db/app

  cdc-relay init --config relay.yaml

  cdc-relay init --config relay.yaml --no-slot

  cdc-relay init --config relay.yaml --postgres-url postgres://postgres@db/app --roles

  cdc-relay init --rabbitmq-topology --dry-run --config relay.yaml

  cdc-relay init --inbox public --postgres-url postgres://billing@db/billing`, c.Run)
	f := cmd.Flags()
	f.BoolVar(&c.DryRun, "dry-run", false, "Print the SQL and create nothing.")
	f.BoolVar(&c.NoSlot, "no-slot", false, "Leave the slot to the first start: a slot keeps every event from its "+
		"creation on, including those that another worker still publishes.")
	f.BoolVar(&c.Roles, "roles", false, "Also create the least-privilege roles, or grant them what a newer version "+
		"needs.")
	f.StringVar(&c.Stream, "role-stream", "relay_repl", "Name of the role that streams, for postgres.replication_url.")
	f.StringVar(&c.SQL, "role-sql", "relay_rw", "Name of the role that writes the relay's tables, for postgres.url.")
	f.BoolVar(&c.Emit, "emit", false, "Also create the SQL function emit beside the outbox, which writes an event "+
		"in one call: applications need EXECUTE on it, and no right on the table.")
	f.Var(&cli.TextFlag{Into: &c.Inbox, Shown: "SCHEMA", NotEmpty: true}, "inbox",
		"Create only the inbox, in this schema of the database of postgres.url: tables and functions with which "+
			"consumers in any language handle each event once.")
	f.BoolVar(&c.Rabbit, "rabbitmq-topology", false, "Create only this, at the server of rabbitmq.url: the exchanges, "+
		"and queues, retry queues and dead-letter queues for the consumers of rabbitmq.consumers, or for one consumer.")
	f.DurationVar(&c.Timeout, "timeout", 2*time.Minute, "How long all of it may take; creating the slot waits for "+
		"every running transaction to end.")
	return cmd
}

// Run creates what is missing, in the order in which one needs the other.
func (c *initCommand) Run(a *cli.App) error {
	a.Positive("--timeout", c.Timeout)
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	switch {
	case c.Inbox != "" && c.Rabbit:
		return cli.Usage(errors.New("--inbox and --rabbitmq-topology each create only one thing: run init once with each"))
	case (c.Inbox != "" || c.Rabbit) && (c.Roles || c.Emit || c.NoSlot):
		return cli.Usage(errors.New("--inbox and --rabbitmq-topology create only what they name: --roles, --emit and " +
			"--no-slot are for another run of init"))
	case c.Inbox != "":
		return c.makeInbox(ctx, a)
	case c.Rabbit:
		return c.makeTopology(ctx, a)
	}
	st, cfg, err := ask.OpenTables(ctx, a)
	if err != nil {
		return err
	}
	defer st.Close()
	plan, err := install.Missing(ctx, cfg, st, c.NoSlot)
	plan.DryRun = c.DryRun
	create := install.All
	if plan.Slot == install.Left {
		create = install.ButSlot
	}
	if err == nil && !c.DryRun {
		err = create(ctx, cfg, st)
	}
	if err != nil {
		return check.OfService(ctx, cfg, "", install.Explain(ctx, cfg, st, err))
	}
	if c.Roles {
		if err := plan.MakeRoles(ctx, cfg, st, store.Roles{Stream: c.Stream, SQL: c.SQL}); err != nil {
			return check.OfService(ctx, cfg, c.Stream, err)
		}
	}
	if c.Emit {
		if err := plan.MakeEmit(ctx, cfg, st); err != nil {
			return err
		}
	}
	if a.JSON {
		return a.PrintJSON(plan)
	}
	show.Plan(a, plan, cfg)
	return nil
}

// makeInbox creates what consumers need in their database.
func (c initCommand) makeInbox(ctx context.Context, a *cli.App) error {
	cfg, err := a.Load(cli.NeedsPostgres)
	if err != nil {
		return err
	}
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	plan, err := inbox.Create(ctx, conn, c.Inbox, c.DryRun)
	switch {
	case err != nil:
		return err
	case a.JSON:
		return a.PrintJSON(plan)
	case c.DryRun && len(plan.SQL) > 0:
		return a.Script(strings.Join(plan.SQL, ""))
	case c.DryRun:
		cli.Fprintln(a.Out, "-- nothing is missing")
	case len(plan.SQL) > 0:
		cli.Fprintf(a.Out, "inbox        created in schema %s\nNext: docs/inbox.md, Other languages.\n", c.Inbox)
	default:
		cli.Fprintf(a.Out, "inbox        exists in schema %s\n", c.Inbox)
	}
	return nil
}

// makeTopology creates what consumers of RabbitMQ need behind the exchange.
func (c initCommand) makeTopology(ctx context.Context, a *cli.App) error {
	cfg, err := a.Load(cli.NeedsNothing)
	if err != nil {
		return err
	}
	topics, err := brokers.TopicsOf(cfg.Message.Topic)
	switch {
	case err != nil:
		return err
	case cfg.Sink != config.SinkRabbitMQ:
		return cli.Usage(fmt.Errorf("--rabbitmq-topology is for sink rabbitmq, and sink is %s", cfg.Sink))
	case topics.Exact == "" && len(cfg.RabbitMQ.Consumers) == 0:
		return cli.Usage(fmt.Errorf("message.topic is %q, which names an exchange for each row: --rabbitmq-topology needs "+
			"a name without columns, which --message-topic NAME gives for one exchange at a time, or rabbitmq.consumers "+
			"with their exchanges", cfg.Message.Topic))
	}
	driver, err := brokers.RabbitMQ(cfg, zerolog.Nop())
	if err != nil {
		return err
	}
	defer func() { _ = driver.Close() }()
	parts, err := driver.Topology(ctx, topics.Exact, c.DryRun)
	if err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(parts)
	}
	for _, p := range parts {
		state := "created"
		if p.Exists {
			state = "exists"
		} else if c.DryRun {
			state = "missing"
		}
		cli.Fprintf(a.Out, "%-8s %s\n", state, p)
		if p.Warning != "" {
			cli.Fprintf(a.Err, "warning: %s\n", p.Warning)
		}
	}
	return nil
}
