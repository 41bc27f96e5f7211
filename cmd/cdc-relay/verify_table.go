package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

// truth is what the table says, and what the topics showed of it so far. One goroutine uses it.
type truth struct {
	judge   *verify.Judge
	pending map[string]struct{} // expected, not published by the relay's own tables, and not seen
	offsets *topicReader        // knows where topics begin, and learns which there are
	verdict *verdict
	tell    func(string)
}

// seen passes a record on to the judge.
func (t *truth) seen(r verify.Record) {
	delete(t.pending, r.ID)
	t.judge.Saw(r)
}

// row is a row of the outbox with its state by the status view.
type row struct {
	id        string
	payload   []byte
	columns   []*string // those that templates name, in the order of templates.columns
	status    string
	topic     *string // where the journal says that it is
	partition *int32
	offset    *int64
}

// read takes every row of the range, in the table's order, from one snapshot.
func (t *truth) read(ctx context.Context, cfg config.Config, st *store.Store, wanted wantedRows) error {
	table, err := st.Outbox(ctx)
	if err != nil {
		return err
	}
	templates, err := newTemplates(cfg)
	if err != nil {
		return err
	}
	conn, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	query, args := auditQuery(cfg, table, templates, wanted)
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	defer rows.Close()
	const tellEvery = 10_000
	for rows.Next() {
		r := row{columns: make([]*string, len(templates.columns))}
		into := []any{&r.id, &r.payload, &r.status, &r.topic, &r.partition, &r.offset}
		for i := range r.columns {
			into = append(into, &r.columns[i])
		}
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("read a row of the outbox: %w", err)
		}
		if err := t.take(ctx, r, templates); err != nil {
			return err
		}
		if t.verdict.Rows%tellEvery == 0 {
			t.tell(fmt.Sprintf("%d rows read", t.verdict.Rows))
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	return nil
}

// take decides what is to be expected of a row.
func (t *truth) take(ctx context.Context, r row, templates *templates) error {
	t.verdict.Rows++
	topic := templates.topic.render(r.columns)
	key := []byte(templates.key.render(r.columns))
	if len(key) == 0 {
		key = nil
	}
	expected := verify.Committed{ID: r.id, Topic: topic, Key: key, Value: verify.DigestOf(r.payload)}
	switch r.status {
	case "failed":
		t.verdict.Dead++
		expected.Fate = verify.Dead
	case "retrying", "blocked":
		t.verdict.Parked++
		expected.Fate = verify.Parked
	case "published":
		if r.topic == nil || r.partition == nil || r.offset == nil {
			t.verdict.Unjudged++
			return nil
		}
		begin, err := t.offsets.begin(ctx, *r.topic, *r.partition)
		if err != nil {
			return err
		}
		if *r.offset < begin {
			t.verdict.Expired++
			return nil
		}
	default:
		t.pending[r.id] = struct{}{}
	}
	if err := t.offsets.follow(ctx, topic); err != nil {
		return err
	}
	return t.judge.Expect(expected)
}

// auditQuery selects the range of the outbox in its order, with the state of each row. The payload comes as bytes: those
// of its text form, as the stream carries it, or of the bytea itself.
func auditQuery(cfg config.Config, table store.Outbox, templates *templates, wanted wantedRows) (string, []any) {
	name := func(parts ...string) string { return pgx.Identifier(parts).Sanitize() }
	columns := cfg.Outbox.Columns
	id, payload := "o."+name(columns.ID), "o."+name(columns.Payload)
	if table.PayloadType != "bytea" {
		payload = "convert_to(" + payload + "::text, 'UTF8')"
	}
	list := []string{id + "::text", payload, "v.status", "v.topic", "v.partition", `v."offset"`}
	for _, c := range templates.columns {
		list = append(list, "o."+name(c)+"::text")
	}
	var conditions []string
	var args []any
	where := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if wanted.fromID != "" {
		where("i."+name(columns.ID)+" >= $%d::text::"+table.IDType, wanted.fromID)
	}
	if wanted.toID != "" {
		where("i."+name(columns.ID)+" <= $%d::text::"+table.IDType, wanted.toID)
	}
	if wanted.since != nil {
		where("i."+name(columns.CreatedAt)+" >= $%d", *wanted.since)
	}
	if wanted.until != nil {
		where("i."+name(columns.CreatedAt)+" < $%d", *wanted.until)
	}
	inner := "SELECT i.*, row_number() OVER (ORDER BY " + table.OrderBy + ") AS cdc_relay_order FROM " + name(table.Schema, table.Name) + " i"
	if len(conditions) > 0 {
		inner += " WHERE " + strings.Join(conditions, " AND ")
	}
	return "SELECT " + strings.Join(list, ", ") + " FROM (" + inner + ") o LEFT JOIN " + name(cfg.Postgres.Schema, table.Name+"_status") +
		" v ON v.id = " + id + " ORDER BY o.cdc_relay_order", args
}

// templates render a row's topic and key as the relay does, from the configuration's text alone.
type templates struct {
	topic, key template
	columns    []string // of the table, that the two name
}

// template is text and columns in turn.
type template []part

type part struct {
	literal string
	column  int // index in templates.columns; -1 for literal text
}

func newTemplates(cfg config.Config) (*templates, error) {
	t := &templates{}
	var err error
	if t.topic, err = t.compile(cfg, cfg.Message.Topic); err != nil {
		return nil, fmt.Errorf("read message.topic: %w", err)
	}
	if t.key, err = t.compile(cfg, cfg.Message.Key); err != nil {
		return nil, fmt.Errorf("read message.key: %w", err)
	}
	return t, nil
}

func (t *templates) compile(cfg config.Config, text string) (template, error) {
	parts, err := config.ParseTemplate(text)
	if err != nil {
		return nil, err
	}
	compiled := template{}
	for _, p := range parts {
		if p.Column == "" {
			compiled = append(compiled, part{literal: p.Literal, column: -1})
			continue
		}
		t.columns = append(t.columns, mappedColumn(cfg, p.Column))
		compiled = append(compiled, part{column: len(t.columns) - 1})
	}
	return compiled, nil
}

// mappedColumn is the column behind a name in a template: the event's own fields first, then any column of the row.
func mappedColumn(cfg config.Config, name string) string {
	c := cfg.Outbox.Columns
	fields := map[string]string{
		"id": c.ID, "aggregate_type": c.AggregateType, "aggregate_id": c.AggregateID, "event_type": c.EventType,
		"payload": c.Payload, "headers": c.Headers, "created_at": c.CreatedAt,
	}
	if column := fields[name]; column != "" {
		return column
	}
	return name
}

// render puts the columns in; NULL is empty text.
func (t template) render(columns []*string) string {
	var b strings.Builder
	for _, p := range t {
		if p.column < 0 {
			b.WriteString(p.literal)
		} else if columns[p.column] != nil {
			b.WriteString(*columns[p.column])
		}
	}
	return b.String()
}
