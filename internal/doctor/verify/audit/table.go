package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// pendingMost is how many rows that nothing is recorded of are waited for, each by its id.
const pendingMost = 100_000

// truth holds the rows of the table, and which of them the topics have shown so far.
type truth struct {
	auditor *verify.Auditor
	reader  *topicReader // learns which topics there are
	tell    func(string)
	rows    int
	spooled store.SpoolState
	pending pending
}

// read takes every row of the range, from one snapshot.
func (t *truth) read(ctx context.Context, cfg config.Config, st *store.Store, wanted store.AuditRange) error {
	templates, err := newTemplates(cfg)
	if err != nil {
		return err
	}
	const tellEvery = 10_000
	return st.AuditRows(ctx, wanted, templates.columns, func(r *store.AuditRow) error {
		if t.rows++; t.rows%tellEvery == 0 {
			t.tell(fmt.Sprintf("%d rows read", t.rows))
		}
		return t.take(ctx, r, templates)
	})
}

// take decides what is to be expected of a row.
func (t *truth) take(ctx context.Context, r *store.AuditRow, templates *templates) error {
	row := verify.Row{ID: r.ID, Topic: templates.topic.render(r.Columns),
		Value: verify.DigestOf(expected(templates.format, t.reader.payload, r.Payload)), Order: r.Order}
	if r.Made != nil {
		row.Made = verify.MadeAt(*r.Made)
	}
	if key := templates.key.ofColumns(r.Columns); key != "" {
		row.Key = []byte(key)
	}
	switch {
	case r.Journaled:
		row.State = verify.StatedPublished
		if row.Place = t.reader.place(r, row.Topic); row.Place.Topic != "" {
			if err := t.reader.follow(ctx, row.Place.Topic); err != nil {
				return err
			}
		}
	case r.Parked:
		row.State = verify.StatedParked
	case r.Dead:
		row.State = verify.StatedDead
	case r.Published:
		row.State = verify.StatedPublished
	default:
		t.pending.add(r.ID, row.Made)
	}
	if err := t.reader.follow(ctx, row.Topic); err != nil {
		return err
	}
	return t.auditor.Row(row)
}

// templates render a row's topic and key as the relay does, from the configuration's text alone.
type templates struct {
	topic, key template
	columns    []string // of the table, that the two name
	format     string   // message.format
}

// template is text and columns in turn.
type template []part

type part struct {
	literal string
	column  int      // index in templates.columns; -1 for what is none
	inner   template // an aggregate's type or id that is composed of columns
}

// newTemplates reads the configuration's templates; of several outboxes outbox.table names the one that is audited.
func newTemplates(cfg config.Config) (*templates, error) {
	t := &templates{format: cfg.Message.Format}
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
	constants := map[string]string{}
	if cfg.Outbox.Tables != "" {
		constants = outbox.Constants(config.SplitTable(cfg.Outbox.Table))
	}
	for _, p := range parts {
		if p.Column == "" {
			compiled = append(compiled, part{literal: p.Literal, column: -1})
			continue
		}
		if text, is := constants[p.Column]; is {
			compiled = append(compiled, part{literal: text, column: -1})
			continue
		}
		of := cfg.Outbox.Columns.Of(p.Column)
		if len(of) == 1 && of[0].Column != "" {
			compiled = append(compiled, t.take(of[0]))
			continue
		}
		inner := part{column: -1, inner: template{}}
		for _, q := range of {
			inner.inner = append(inner.inner, t.take(q))
		}
		compiled = append(compiled, inner)
	}
	return compiled, nil
}

// take compiles one part, whose column is the table's.
func (t *templates) take(p config.Part) part {
	if p.Column == "" {
		return part{literal: p.Literal, column: -1}
	}
	t.columns = append(t.columns, p.Column)
	return part{column: len(t.columns) - 1}
}

// render puts the columns in; NULL is empty text.
func (t template) render(columns []*string) string {
	var b strings.Builder
	for _, p := range t {
		switch {
		case p.inner != nil:
			b.WriteString(p.inner.ofColumns(columns))
		case p.column < 0:
			b.WriteString(p.literal)
		case columns[p.column] != nil:
			b.WriteString(*columns[p.column])
		}
	}
	return b.String()
}

// ofColumns is render, or no text where the template names columns and all of them are NULL or empty: then the relay
// takes what is composed of them for NULL, and a key for no key.
func (t template) ofColumns(columns []*string) string {
	for _, p := range t {
		one := template{p}
		if (p.inner != nil || p.column >= 0) && one.render(columns) != "" {
			return t.render(columns)
		}
	}
	if slices.ContainsFunc(t, func(p part) bool { return p.inner != nil || p.column >= 0 }) {
		return ""
	}
	return t.render(columns)
}
