package db

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Mapped is one mapped column: the configuration key behind it, and the types that fit.
type Mapped struct {
	key, Name string
	types     []string // nil = any
	add       string   // type for the ALTER that would add it
}

// MappedColumns are the columns that the configuration maps, and those that templates name.
func (s *DB) MappedColumns() []Mapped {
	c := s.Config.Columns
	list := []Mapped{
		{"id", c.ID, []string{"uuid", "text", "character varying", "smallint", "integer", "bigint"}, "uuid"},
		{"aggregate_type", c.AggregateType, nil, "text"},
		{"aggregate_id", c.AggregateID, nil, "text"},
		{"event_type", c.EventType, nil, "text"},
		{"payload", c.Payload, []string{"jsonb", "json", "text", "character varying", "bytea"}, "jsonb"},
		{"headers", c.Headers, []string{"jsonb", "json", "text", "character varying"}, "jsonb"},
		{"created_at", c.CreatedAt, []string{"timestamp with time zone", "timestamp without time zone"},
			"timestamptz NOT NULL DEFAULT clock_timestamp()"},
	}
	for _, name := range c.Extra {
		list = append(list, Mapped{"", name, nil, "text"})
	}
	return list
}

// fit checks the mapped columns, all at once, and fills in the defaults that depend on the table.
func (s *DB) fit(o *Table, columns []column, children []string) error {
	byName := make(map[string]column, len(columns))
	for _, c := range columns {
		byName[c.name] = c
		o.Columns = append(o.Columns, c.name)
	}
	var problems []error
	for _, child := range children {
		problems = append(problems, fmt.Errorf("table %s inherits from it (INHERITS), which %w: move the rows that are "+
			"still "+
			"to be published into the outbox, then ALTER TABLE %s NO INHERIT %s.%s; or partition the outbox "+
			"(docs/partitioned-outbox.md)", child, record.ErrInherited, child, Quote(o.Schema), Quote(o.Name)))
	}
	for _, w := range s.MappedColumns() {
		if w.Name == "" {
			continue
		}
		problems = append(problems, s.fitColumn(w, byName, o.Columns))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	c := s.Config.Columns
	switch base := byName[c.ID].base; base {
	case "uuid":
		o.IDType = IDUUID
	case "smallint", "integer", "bigint":
		o.IDType = idBigint // so that the application may widen its column
	default:
		o.IDType = idText
	}
	o.PayloadType, o.HeadersType = storedType(byName[c.Payload].base), storedType(byName[c.Headers].base)
	o.idCollation = byName[c.ID].collation
	o.CreatedZoned = byName[c.CreatedAt].base == "timestamp with time zone"
	s.fitDefaults(o, byName)
	return fitPartitionKey(o, columns)
}

func storedType(base string) string {
	if base == "character varying" {
		return "text"
	}
	return base
}

func (s *DB) fitColumn(w Mapped, byName map[string]column, all []string) error {
	key := "outbox.columns." + w.key
	if w.key == "" {
		key = "the template that names it"
	}
	have, found := byName[w.Name]
	switch {
	case !found:
		return fmt.Errorf("no column %[1]q: if it was renamed, ALTER TABLE %[2]s RENAME COLUMN <its name now> TO "+
			"%[3]s, or set %[4]s to one of its columns (%[5]s); "+
			"if it is missing, ALTER TABLE %[2]s ADD COLUMN %[3]s %[6]s", w.Name, s.Names.Outbox, Quote(w.Name), key,
			strings.Join(all, ", "), w.add)
	case w.types != nil && !slices.Contains(w.types, have.base):
		return fmt.Errorf("column %q is of type %s, want one of %s: set %s to another column",
			w.Name, have.declared, strings.Join(w.types, ", "), key)
	case have.generated:
		return fmt.Errorf("column %q is generated, and generated columns are not in the WAL: set %s to another column",
			w.Name, key)
	}
	return nil
}

func (s *DB) fitDefaults(o *Table, byName map[string]column) {
	_, o.HasPublishedAt = byName["published_at"]
	o.PublishedWhen, o.MarkSet, o.OrderBy = s.Config.PublishedWhen, s.Config.MarkSet, s.Config.OrderBy
	if o.PublishedWhen == "" {
		o.PublishedWhen = "false"
		if o.HasPublishedAt {
			o.PublishedWhen = "published_at IS NOT NULL"
		}
	}
	if o.MarkSet == "" && o.HasPublishedAt {
		o.MarkSet = "published_at = now()"
	}
	if s.Config.AfterPublish == record.Keep || s.Config.AfterPublish == record.Delete {
		o.MarkSet = ""
	}
	if s.Config.AfterPublish != record.Keep {
		o.DeadSet, o.RetrySet = failureSet(s.Config.DeadSet), failureSet(s.Config.RetrySet)
	}
	if o.OrderBy != "" {
		o.OrderBy = quoteColumns(o.OrderBy, byName)
		return
	}
	if seq, found := byName["seq"]; found {
		o.OrderBy = "seq"
		if seq.base == "bigint" || seq.base == "integer" || seq.base == "smallint" {
			o.Position = "o.seq::bigint"
		}
		return
	}
	if created := s.Config.Columns.CreatedAt; created != "" {
		o.OrderBy = Quote(created) + ", "
		o.Position = "CASE WHEN isfinite(o." + Quote(created) + ") THEN (extract(epoch FROM o." + Quote(created) +
			") * 1000000)::bigint ELSE 0 END"
	}
	o.OrderBy += Quote(s.Config.Columns.ID)
}

// quoteColumns quotes the terms of an ORDER BY that begin with a column of the table, which has its name as the catalog
// spells it. Those in double quotes are quoted already.
func quoteColumns(terms string, byName map[string]column) string {
	quoted := false
	list := strings.FieldsFunc(terms, func(r rune) bool {
		quoted = quoted != (r == '"')
		return r == ',' && !quoted
	})
	for i, term := range list {
		name, direction, _ := strings.Cut(strings.TrimSpace(term), " ")
		if _, found := byName[name]; found {
			list[i] = strings.TrimSpace(Quote(name) + " " + direction)
		}
	}
	return strings.Join(list, ", ")
}

// fitPartitionKey refuses a mark that would move a row to another partition: Postgres replicates such an UPDATE as an
// INSERT of the same row, also with publish = 'insert', and the event would be delivered again.
func fitPartitionKey(o *Table, columns []column) error {
	for _, c := range columns {
		for _, set := range []struct{ key, list string }{{"mark_set", o.MarkSet}, {"dead_set", o.DeadSet},
			{"retry_set", o.RetrySet}} {
			if c.partition && set.list != "" && Assigns(set.list, c.name) {
				return fmt.Errorf("outbox.%[2]s changes %[1]q, by which the table is partitioned: the row would move and be "+
					"delivered again; set outbox.after_publish to keep, or %[2]s to other columns", c.name, set.key)
			}
		}
	}
	return nil
}

// Assigns tells whether the assignments name the column before an equals sign or in a list of columns; a false alarm is
// possible where the name is part of an expression, an oversight is not.
func Assigns(set, column string) bool {
	word := func(r byte) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80
	}
	set, column = strings.ToLower(set), strings.ToLower(column)
	for from := 0; ; {
		i := strings.Index(set[from:], column)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(column)
		if (start == 0 || !word(set[start-1])) && (end == len(set) || !word(set[end])) {
			return true
		}
		from = start + 1
	}
}
