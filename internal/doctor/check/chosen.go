package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// chosenMost is how many topics of the table are compared with what the brokers show.
const chosenMost = 200

// chosen holds the topics that rows choose.
type chosen struct {
	events []string // that rows choose, and those that the relay has used
	copies []string // that dead letters of the rows would choose, where dlq.topic names columns of the row

	subjects []string // of the schemas of the rows' events, in the formats that need a registry

	known bool // the rows were asked for, and answered: what is not here is chosen by none of them
}

// chosenTopics asks the database. What cannot be read is left out: the look at the database has said why.
func chosenTopics(ctx context.Context, cfg config.Config, r *Report) (c chosen) {
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return c
	}
	defer st.Close()
	seen, err := st.SeenTopics(ctx, chosenMost)
	if err != nil {
		seen = nil // there are no tables yet
	}
	c.known = true
	ofRows := c.ofRows(ctx, st, eventParts(cfg), columnsSet(cfg.Message.Topic, cfg), "topics of the rows", r)
	warnOfManyTopics(cfg, len(ofRows), r)
	c.events = append(seen, ofRows...)
	slices.Sort(c.events)
	c.events = slices.Compact(c.events)
	if namesColumns(cfg.DLQ.Topic) {
		c.copies = c.ofRows(ctx, st, copyParts(cfg), nil, "topics of the rows' dead letters", r)
	}
	if cfg.Message.NeedsRegistry() {
		c.subjects = c.ofRows(ctx, st, subjectParts(cfg), nil, "subjects of the rows", r)
	}
	return c
}

// ofRows are the topics that a template makes of the rows. Where there is no table yet, there are no rows.
func (c *chosen) ofRows(ctx context.Context, st *store.Store, parts []outbox.Part, set []string, name string,
	r *Report) []string {
	list, all, err := topicsOf(ctx, st, parts, set)
	switch code := sqlState(err); {
	case err == nil || code == "42P01": // undefined_table
	case strings.HasPrefix(code, "42"): // a column or a right is missing, as the look at the database has said
		c.known = false
	default:
		c.known = false
		r.add(Warn, name, "not known: "+err.Error(), "")
	}
	if err == nil && !all {
		r.add(Warn, name, "the outbox is large: only some rows were checked",
			"the log of run names each topic that it lacks")
	}
	if len(list) == chosenMost {
		r.add(Warn, name, fmt.Sprintf("the rows choose %d topics or more: only these were checked", chosenMost), "")
	}
	return list
}

// topicsOf are the topics of the rows of all tables, up to chosenMost; all: each row was looked at.
func topicsOf(ctx context.Context, st *store.Store, parts []outbox.Part, set []string) (list []string, all bool,
	err error) {
	tables, err := st.EachTable(ctx)
	if err != nil {
		return nil, false, err
	}
	all = true
	for i, table := range tables {
		if i == mostOutboxes || len(list) >= chosenMost {
			return list[:min(len(list), chosenMost)], false, nil
		}
		own := parts
		if table != st {
			own = of(table, parts)
		}
		some, whole, err := table.ChosenTopics(ctx, own, set, chosenMost)
		if err != nil {
			return nil, false, err
		}
		list, all = append(list, some...), all && whole
		slices.Sort(list)
		list = slices.Compact(list)
	}
	return list[:min(len(list), chosenMost)], all, nil
}

// of has the names of one of several outboxes for {schema} and {table}.
func of(st *store.Store, parts []outbox.Part) []outbox.Part {
	constants := outbox.Constants(st.Table().Schema, st.Table().Name)
	parts = slices.Clone(parts)
	for i, p := range parts {
		if text, is := constants[p.Column]; is {
			parts[i] = outbox.Part{Literal: text}
		}
	}
	return parts
}

// warnOfManyTopics reports a message.topic over columns with many values.
func warnOfManyTopics(cfg config.Config, found int, r *Report) {
	parts, _ := config.ParseTemplate(cfg.Message.Topic) // its rule has checked it
	unique := slices.ContainsFunc(parts, func(p config.Part) bool { return p.Column == "id" })
	if !unique && found < chosenMost {
		return
	}
	why := fmt.Sprintf("the rows choose %d topics or more", chosenMost)
	if unique {
		why = "each row has its own id, and so its own topic"
	}
	r.add(Warn, "message.topic", fmt.Sprintf("%s: %s; events for more topics than limits.topics, %d, become dead letters",
		cfg.Message.Topic, why, cfg.Limits.Topics),
		"have message.topic name a column with few values; if the topics are meant, set limits.topics above their number")
}

// sqlState is Postgres's code of an error, if it is one of its.
func sqlState(err error) string {
	if pg, is := errors.AsType[*pgconn.PgError](err); is {
		return pg.Code
	}
	return ""
}

// eventParts are the parts of message.topic by the table's columns.
func eventParts(cfg config.Config) []outbox.Part {
	parts, err := config.ParseTemplate(cfg.Message.Topic)
	if err != nil {
		return nil
	}
	return columnsOf(parts, cfg)
}

// columnsSet are the table's columns that the template names by themselves: a row with NULL in one makes no topic.
func columnsSet(template string, cfg config.Config) (list []string) {
	parts, _ := config.ParseTemplate(template) // its rule has checked it
	constants := outbox.Constants("", "")
	for _, p := range parts {
		if _, is := constants[p.Column]; is && cfg.Outbox.Tables != "" {
			continue
		}
		if of := cfg.Outbox.Columns.Of(p.Column); p.Column != "" && len(of) == 1 && of[0].Column != "" {
			list = append(list, of[0].Column)
		}
	}
	return list
}

// subjectParts are the parts of registry.subject by the table's columns.
func subjectParts(cfg config.Config) []outbox.Part {
	text := strings.ReplaceAll(cfg.Registry.Subject, "{"+config.EventTopic+"}", cfg.Message.Topic)
	parts, err := config.ParseTemplate(text)
	if err != nil {
		return nil
	}
	return columnsOf(parts, cfg)
}

// columnsOf are the parts of the template by the columns' names in the table.
func columnsOf(parts []config.Part, cfg config.Config) (list []outbox.Part) {
	for _, p := range parts {
		if p.Column == "" {
			list = append(list, outbox.Part(p))
			continue
		}
		for _, q := range cfg.Outbox.Columns.Of(p.Column) {
			list = append(list, outbox.Part(q))
		}
	}
	return list
}
