package configure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

type initCommand struct {
	Write   string
	Force   bool
	Timeout time.Duration
}

func (c *initCommand) command() *cobra.Command {
	cmd := cli.Command("init", "Write a configuration file from the database.",
		`Asks the database what it has (tables that look like an outbox, publications, slots, wal_level), changes
nothing there, and writes a configuration file with comments. What is set by flags and environment goes into the file,
too: the database's URL and, for the sink, its kind and address. What could not be found out, or is not as the relay
needs it, stands in the file under "To do". Outboxes of one name in schemas such as tenant_1 and tenant_2 become a
pattern in outbox.tables.

Passwords are not written: name a file in postgres.password_file. A table that another worker publishes from? Read
docs/migrating.md before you run init.

Examples:

  cdc-relay config init --postgres-url postgres://relay@db/shop --kafka-brokers kafka-1:9092,kafka-2:9092

  cdc-relay config init --postgres-url postgres://relay@db/shop --sink nats --nats-url nats://nats:4222 --write -

  cdc-relay config init --postgres-url postgres://relay@db/shop --outbox-table billing.events --kafka-brokers k:9092`,
		c.Run)
	f := cmd.Flags()
	c.Write = "relay.yaml"
	f.Var(&cli.TextFlag{Into: &c.Write, Shown: "FILE"}, "write", "Path of the file to write; - writes it to "+
		"standard output.")
	f.BoolVar(&c.Force, "force", false, "Replace an existing file.")
	f.DurationVar(&c.Timeout, "timeout", 30*time.Second, "How long the database may take to answer.")
	return cmd
}

// written is the result of writing the file.
type written struct {
	File  string   `json:"file"`
	Table string   `json:"table"` // that was recognised, or named; empty: none
	ToDo  []string `json:"todo"`
}

// Run asks, writes, and says what is left to do.
func (c *initCommand) Run(a *cli.App) error {
	c.Write = cli.Path(c.Write)
	a.Positive("--timeout", c.Timeout)
	if _, err := os.Stat(c.Write); err == nil && !c.Force && c.Write != "-" {
		a.Wrong("--write", c.Write+" already exists and was left unchanged", "a path where no file is, or --force")
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cfg, err := ask.Load(ctx, a, cli.NeedsBoth)
	if err != nil {
		return err
	}
	d, err := look(ctx, cfg)
	if err != nil {
		return err
	}
	w := &writer{page: newPage(), cfg: cfg, d: d, isSet: func(key string) bool { return a.Origin(key) != "" }}
	w.postgres()
	w.outbox()
	w.relayOf(ctx)
	w.rest()
	text := w.page.text(w.head())
	in := config.Input{File: c.Write, Text: []byte(text), Required: cli.NeedsBoth, Flags: w.left}
	if _, err := config.Load(in); err != nil {
		return fmt.Errorf("what would be written is refused, so nothing is; set these keys by flags: %w", err)
	}
	if err := c.save(a, text); err != nil {
		return err
	}
	result := written{File: c.Write, Table: w.table, ToDo: append([]string{}, w.page.todo...)}
	switch {
	case c.Write == "-":
	case a.JSON:
		return a.PrintJSON(result)
	default:
		result.print(a)
	}
	return nil
}

// save writes the file; without --force it never replaces one.
func (c initCommand) save(a *cli.App, text string) error {
	if c.Write == "-" {
		return a.Script(text)
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if c.Force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(c.Write, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usage(fmt.Errorf("%s already exists and was left unchanged; --force replaces it", c.Write))
	}
	if err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func (w written) print(a *cli.App) {
	cli.Fprintf(a.Out, "written      %s\n", w.File)
	if w.Table != "" {
		cli.Fprintf(a.Out, "outbox       %s\n", cli.Plain(w.Table))
	}
	for _, one := range w.ToDo {
		cli.Fprintf(a.Out, "to do        %s\n", cli.Plain(one))
	}
	cli.Fprintf(a.Out, "Next: read it; cdc-relay init --dry-run --config %[1]s; cdc-relay check --config %[1]s.\n",
		w.File)
}

// writer fills a page from what is set and what the database has.
type writer struct {
	page       *page
	cfg        config.Config
	d          database
	isSet      func(key string) bool
	table      string // that was recognised, or named
	recognised table
	tables     []table          // of several outboxes
	left       []config.Setting // what the file is complete with: it holds a password, so it is not written
}

// leaveOut does not write a value from which the password could not be taken out.
func (w *writer) leaveOut(key, value string) {
	w.left = append(w.left, config.Setting{Flag: "--set", Key: key, Value: value})
	w.page.remember("set %s, without a password in it: the value that was given may hold one that could not be taken "+
		"out, so it is not written", key)
}

func (w *writer) head() []string {
	return []string{
		fmt.Sprintf("Written by cdc-relay config init, from what the database %s has (PostgreSQL %s, seen as the role %s).",
			w.d.name, w.d.version, w.d.role),
		"Every other key has a default: docs/configuration.md, or cdc-relay config show --all.",
	}
}

// postgres writes how the database is reached.
func (w *writer) postgres() {
	url, had, clean := withoutPassword(w.cfg.Postgres.URL, false)
	switch {
	case !clean:
		w.leaveOut("postgres.url", w.cfg.Postgres.URL)
	case had:
		w.page.set("postgres.url", quote(url),
			"The password that was given is not written. Put it into a file, and name it in password_file.")
		w.page.remember("name a file with the password in postgres.password_file")
	default:
		w.page.set("postgres.url", quote(url))
	}
	if w.d.walLevel != "logical" {
		w.page.remember("wal_level is %s: ALTER SYSTEM SET wal_level = 'logical'; and restart Postgres (managed services "+
			"have a parameter for it)", w.d.walLevel)
	}
	if !w.isSet("postgres.schema") && len(w.d.schemas) == 1 {
		w.cfg.Postgres.Schema = w.d.schemas[0]
		w.page.set("postgres.schema", quote(w.d.schemas[0]), "The relay's tables exist.")
	}
}

// outbox writes the table: the one that was named, or the one that looks most like an outbox. Of several it writes the
// pattern.
func (w *writer) outbox() {
	tables := w.d.tables
	named := w.isSet("outbox.table")
	if w.isSet("outbox.tables") {
		var p outbox.Pattern
		p.Schema, p.Table = config.SplitTable(w.cfg.Outbox.Tables)
		w.several(chosenBy(p, tables))
		return
	}
	if s, are := tenants(tables); are && !named {
		w.several(s)
		return
	}
	if named {
		tables = slices.DeleteFunc(slices.Clone(tables), func(t table) bool { return t.String() != w.cfg.TableName() })
	}
	found := recogniseAll(tables)
	switch {
	case named && len(tables) == 0:
		w.page.set("outbox.table", quote(w.cfg.Outbox.Table), "The table does not exist yet: cdc-relay init creates it.")
	case named && len(found) == 0:
		w.page.set("outbox.table", quote(w.cfg.Outbox.Table), "Its columns: "+names(tables[0])+".")
		w.page.remember("map the columns of %s in outbox.columns: they are not recognised", w.cfg.Outbox.Table)
	case len(found) == 0:
		w.page.set("outbox.table", quote(w.cfg.Outbox.Table),
			"No table looks like an outbox: cdc-relay init creates this one. Another one is yours? Name it, and its columns.")
		if !w.isSet("outbox.columns.headers") {
			w.page.set("outbox.columns.headers", "headers", "A jsonb object of strings becomes message headers.")
			w.cfg.Outbox.Columns.Headers = "headers"
		}
	case len(found) > 1 && found[0].score == found[1].score:
		w.page.set("outbox.table", quote(w.cfg.Outbox.Table), "Tables that look like an outbox: "+list(found)+".")
		w.page.remember("choose the outbox among %s: config init again, with --outbox-table", list(found))
	default:
		w.mapped(found)
	}
}

// mapped writes the table and its columns.
func (w *writer) mapped(found []candidate) {
	best := found[0]
	w.table, w.cfg.Outbox.Table, w.recognised = best.String(), best.String(), best.table
	comments := []string{"Recognised by its columns."}
	if l, is := libraryOf(best.table); is {
		comments = []string{"Recognised as the table of " + l.library + "."}
	}
	if len(found) > 1 {
		comments = append(comments, "Less like an outbox, but possible: "+list(found[1:])+".")
	}
	w.page.set("outbox.table", quote(best.String()), comments...)
	w.columns(best)
}

// columns writes the columns of the table.
func (w *writer) columns(best candidate) {
	for _, f := range fields {
		key := "outbox.columns." + f.key
		if w.isSet(key) {
			continue
		}
		if column := best.of[f.key]; column != "" {
			w.page.set(key, quote(column))
			continue
		}
		w.page.set(key, `""`, "No column was recognised.")
		switch f.key {
		case "event_type": // every event has one
			best.of[f.key] = "event_type"
			w.page.set(key, "event_type")
			w.page.remember("name the column of the type of an event in outbox.columns.event_type, or add one: ALTER TABLE %s "+
				"ADD COLUMN event_type text NOT NULL DEFAULT 'order_changed', with a type of yours",
				inSQL(best.schema)+"."+inSQL(best.name))
		case "aggregate_type":
			w.topic(best.table)
		case "aggregate_id":
			w.page.remember("name the column of the key in outbox.columns.aggregate_id: without it no order is kept")
		}
	}
	w.take(best.of)
	w.library(best.table)
}

// topic writes the topic of events without a type of the aggregate.
func (w *writer) topic(t table) {
	if w.cfg.Sink == config.SinkRabbitMQ && !w.isSet("rabbitmq.routing_key") {
		w.cfg.RabbitMQ.RoutingKey = "{event_type}"
		w.page.set("rabbitmq.routing_key", quote(w.cfg.RabbitMQ.RoutingKey))
	}
	if w.isSet("message.topic") {
		return
	}
	for _, name := range strings.Fields(topicNames) {
		if column := t.column(name); column != "" {
			w.cfg.Message.Topic = "{" + column + "}"
			w.page.set("message.topic", quote(w.cfg.Message.Topic), "The column of the table.")
			w.page.remember("see that each %s of the table is a name of a topic: an event with another is a dead letter", column)
			return
		}
	}
	w.cfg.Message.Topic = "outbox.event"
	w.page.set("message.topic", w.cfg.Message.Topic, "Without a type of the aggregate all events share one topic.")
	w.page.remember("choose message.topic: no column for the type of the aggregate was recognised")
}

// take has the columns, by the field's key, in the configuration that the table is looked at with, where none were set.
func (w *writer) take(found map[string]string) {
	mine := &w.cfg.Outbox.Columns
	for key, column := range map[string]*string{
		"id": &mine.ID, "event_type": &mine.EventType, "payload": &mine.Payload, "headers": &mine.Headers,
		"aggregate_type": &mine.AggregateType, "aggregate_id": &mine.AggregateID, "created_at": &mine.CreatedAt,
	} {
		if !w.isSet("outbox.columns." + key) {
			*column = found[key]
		}
	}
}

func names(t table) string {
	var found []string
	for _, c := range t.columns {
		found = append(found, c.name+" "+c.kind)
	}
	return strings.Join(found, ", ")
}

func list(found []candidate) string {
	var names []string
	for _, c := range found {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}
