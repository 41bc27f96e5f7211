package message

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// field is a column of the event: one of the named ones, or firstExtra + index into Event.Extra.
type field int

// fieldTopic is no column: in dlq.topic, the topic that the event should have gone to.
const fieldTopic field = -1

const (
	fieldID field = iota
	fieldAggregateType
	fieldAggregateID
	fieldEventType
	fieldCreatedAt
	fieldPayload
	fieldHeaders
	firstExtra
)

func (f field) of(e *outbox.Event) []byte {
	switch f {
	case fieldID:
		return e.ID
	case fieldAggregateType:
		return e.AggregateType
	case fieldAggregateID:
		return e.AggregateID
	case fieldEventType:
		return e.EventType
	case fieldCreatedAt:
		return e.CreatedAt
	case fieldPayload:
		return e.Payload
	case fieldHeaders:
		return e.Headers
	}
	return e.Extra[f-firstExtra]
}

// template is a compiled template: literal, column, literal, column, … literal.
type template struct {
	literals []string
	fields   []field
	names    []string // of the fields, as the template has them
}

// null returns the name of a column that is NULL in the event, "" when none is.
func (t template) null(e *outbox.Event) string {
	for i, f := range t.fields {
		if f != fieldTopic && f.of(e) == nil {
			return t.names[i]
		}
	}
	return ""
}

// single is the column when the template is just one column, so that its bytes can be used as they are.
func (t template) single() (field, bool) {
	if len(t.fields) == 1 && t.literals[0] == "" && t.literals[1] == "" {
		return t.fields[0], true
	}
	return 0, false
}

// Columns lists the table's columns that make up an event, with the further ones that templates and headers name. In a
// template a name means the event's own field first (aggregate_type, whatever its column is called), then a column.
func Columns(c config.Config) outbox.Columns {
	m := c.Outbox.Columns
	cols := outbox.Columns{
		ID: m.ID, AggregateType: m.AggregateType, AggregateID: m.AggregateID, EventType: m.EventType,
		Payload: m.Payload, Headers: m.Headers, CreatedAt: m.CreatedAt,
	}
	if c.Outbox.Tables != "" {
		cols.Constants = outbox.Constants(config.SplitTable(c.Outbox.Table))
	}
	var composed []string
	for i, aggregate := range []*string{&cols.AggregateType, &cols.AggregateID} {
		if !config.IsTemplate(*aggregate) {
			continue
		}
		into := []*[]outbox.Part{&cols.TypeParts, &cols.IDParts}[i]
		for _, p := range m.Of(config.AggregateFields[i]) {
			*into = append(*into, outbox.Part(p))
		}
		composed, *aggregate = append(composed, templateNames(*aggregate)...), ""
	}
	named := append(templateNames(c.Message.Topic), templateNames(c.Message.Key)...)
	if c.Message.NeedsRegistry() {
		named = append(named, c.Registry.SubjectColumns()...)
	}
	for _, name := range templateNames(c.DLQ.Topic) {
		if name != config.EventTopic {
			named = append(named, name)
		}
	}
	for name := range c.Message.Headers {
		named = append(named, name)
	}
	var want []string
	named = slices.DeleteFunc(named, func(name string) bool { _, is := cols.Constants[name]; return is })
	for _, name := range named {
		if _, known := namedField(name, cols); !known {
			want = append(want, name)
		}
	}
	for _, name := range composed {
		if _, known := composedField(name, cols); !known {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	cols.Extra = slices.Compact(want)
	return cols
}

// namedField resolves a name of a template. An aggregate's field is known even where the table has no column
// for it: then it is composed, or NULL.
func namedField(name string, cols outbox.Columns) (field, bool) {
	switch name {
	case "aggregate_type":
		return fieldAggregateType, true
	case "aggregate_id":
		return fieldAggregateID, true
	}
	return composedField(name, cols)
}

// copyField resolves a name of dlq.topic.
func copyField(name string, cols outbox.Columns) (field, bool) {
	if name == config.EventTopic {
		return fieldTopic, true
	}
	return namedField(name, cols)
}

// composedField resolves a name of the template that composes an aggregate's field: never that field itself.
func composedField(name string, cols outbox.Columns) (field, bool) {
	logical := []string{"id", "", "", "event_type", "created_at", "payload", "headers"}
	actual := []string{
		cols.ID, cols.AggregateType, cols.AggregateID, cols.EventType, cols.CreatedAt, cols.Payload, cols.Headers,
	}
	if i := slices.Index(logical, name); i >= 0 && name != "" && actual[i] != "" {
		return field(i), true
	}
	if i := slices.Index(actual, name); i >= 0 && name != "" {
		return field(i), true
	}
	if i := slices.Index(cols.Extra, name); i >= 0 {
		return firstExtra + field(i), true
	}
	return 0, false
}

// templateNames are the columns that a template names; config has checked its form.
func templateNames(text string) (names []string) {
	parts, _ := config.ParseTemplate(text)
	for _, p := range parts {
		if p.Column != "" {
			names = append(names, p.Column)
		}
	}
	return names
}

// FixedTopic is the topic of a template that names no column; none of one that does.
func FixedTopic(text string) []string {
	if len(templateNames(text)) > 0 {
		return nil
	}
	parts, err := config.ParseTemplate(text)
	topic := ""
	for _, p := range parts {
		topic += p.Literal
	}
	if err != nil || topic == "" {
		return nil
	}
	return []string{topic}
}

// lookup finds what a name in a template stands for.
type lookup func(name string, cols outbox.Columns) (field, bool)

func compile(text string, cols outbox.Columns, find lookup) (t template, err error) {
	parts, err := config.ParseTemplate(text)
	if err != nil {
		return t, err
	}
	literal := ""
	for _, p := range parts {
		if p.Column == "" {
			literal += p.Literal
			continue
		}
		if text, is := cols.Constants[p.Column]; is {
			literal += text
			continue
		}
		f, known := find(p.Column, cols)
		if !known {
			return t, fmt.Errorf("template %q: no column for {%s}", text, p.Column)
		}
		t.fields, t.names = append(t.fields, f), append(t.names, p.Column)
		t.literals, literal = append(t.literals, literal), ""
	}
	t.literals = append(t.literals, literal)
	return t, nil
}

// compileAggregate compiles outbox.columns.aggregate_type or aggregate_id; no fields: it is a column, or none.
func compileAggregate(text string, cols outbox.Columns) (template, error) {
	if !config.IsTemplate(text) {
		return template{}, nil
	}
	cols.Constants = nil // SQL composes the field, too, and knows columns only
	return compile(text, cols, composedField)
}

// anyOf reports whether one of the template's columns has text.
func (t template) anyOf(e *outbox.Event) bool {
	return slices.ContainsFunc(t.fields, func(f field) bool { return len(f.of(e)) > 0 })
}
