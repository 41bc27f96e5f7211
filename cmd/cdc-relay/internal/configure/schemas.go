package configure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// This file finds outboxes that are a table of one name in many schemas, as those of tenants are.

const (
	anyText   = "*" // in outbox.tables
	tablesFew = 5   // that are named
)

// schemas are the outboxes that one pattern chooses.
type schemas struct {
	outbox.Pattern
	best   candidate // whose columns are mapped
	fit    []table   // best included
	others []string  // tables that the pattern chooses and that do not fit, each with the reason
}

func (s schemas) String() string { return config.JoinTable(s.Schema, s.Table) }

// tenants is the pattern of those schemas with a common beginning in which most tables of one name and the same columns
// are; false: there are not two. A table that is likelier to be the outbox is not hidden by it.
func tenants(tables []table) (most schemas, are bool) {
	patterns := map[outbox.Pattern]bool{}
	found := recogniseAll(tables)
	for _, c := range found {
		if begin := beginning(c.schema); begin != "" && !strings.Contains(begin+c.name, anyText) {
			patterns[outbox.Pattern{Schema: begin + anyText, Table: c.name}] = true
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(patterns), func(a, b outbox.Pattern) int {
		return cmp.Compare(a.Schema+"."+a.Table, b.Schema+"."+b.Table)
	}) {
		s := chosenBy(p, tables)
		likelier := slices.ContainsFunc(found, func(c candidate) bool {
			return c.score > s.best.score && !p.Fits(c.schema, c.name)
		})
		if len(s.fit) >= 2 && len(s.fit) > len(most.fit) && !likelier {
			most, are = s, true
		}
	}
	return most, are
}

// beginning is what the names of schemas of one kind have in common: up to the first _ or -, or the first digit.
func beginning(schema string) string {
	at := strings.IndexAny(schema, "_-0123456789")
	switch {
	case at <= 0:
		return ""
	case schema[at] == '_', schema[at] == '-':
		at++
	}
	return schema[:at]
}

// chosenBy are the tables of a pattern, by the columns that most of them have.
func chosenBy(p outbox.Pattern, tables []table) (s schemas) {
	s.Pattern = p
	var chosen []table
	shapes, have := map[string]candidate{}, map[string]int{}
	for _, t := range tables {
		if !p.Fits(t.schema, t.name) {
			continue
		}
		chosen = append(chosen, t)
		if c, is := recognise(t); is && have[names(t)] == 0 {
			shapes[names(t)] = c
		}
		have[names(t)]++
	}
	most := 0
	for _, shape := range slices.Sorted(maps.Keys(shapes)) {
		if base, n := shapes[shape], have[shape]; n > most || n == most && base.score > s.best.score {
			s.best, most = base, n
		}
	}
	for _, t := range chosen {
		switch why := unlike(t, s.best); {
		case most == 0:
			s.others = append(s.others, t.String()+" does not look like an outbox")
		case why != "":
			s.others = append(s.others, t.String()+" "+why)
		default:
			s.fit = append(s.fit, t)
		}
	}
	return s
}

// unlike says why a table cannot be an outbox of a slot beside the other one, whose columns are mapped; "": it can.
func unlike(t table, base candidate) string {
	for _, f := range fields {
		name, is := base.of[f.key]
		if !is {
			continue
		}
		own, others := t.kindOf(name), base.kindOf(name)
		switch {
		case own == "":
			return "has no column " + name
		case (f.key == "id" || f.key == "payload") && family(own) != family(others), !f.fits(own):
			return fmt.Sprintf("has %s in the column %s, and not %s", own, name, others)
		}
	}
	return ""
}

// family is the same for types that go together: of ids, or of payloads.
func family(kind string) string {
	switch {
	case isJSON(kind):
		return "json"
	case isText(kind):
		return "text"
	case kind == "smallint", kind == "integer":
		return "bigint"
	}
	return kind
}

// kindOf is the type of a column by its own name; empty: there is none.
func (t table) kindOf(name string) string {
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
	if at < 0 {
		return ""
	}
	return t.columns[at].kind
}

// several writes the pattern, which tables it chooses, and which of them it cannot.
func (w *writer) several(s schemas) {
	w.cfg.Outbox.Tables, w.tables = s.String(), s.fit
	var elsewhere []string
	for _, c := range recogniseAll(w.d.tables) {
		if !s.Fits(c.schema, c.name) {
			elsewhere = append(elsewhere, c.String())
		}
	}
	fit := make([]string, len(s.fit))
	for i, t := range s.fit {
		fit[i] = t.String()
	}
	comments := []string{fmt.Sprintf("%s by its columns: %s.", tablesFit(len(fit)), someOf(fit))}
	if len(elsewhere) > 0 {
		comments = append(comments, "Not chosen by it, but possible outboxes: "+someOf(elsewhere)+".")
	}
	for _, other := range s.others[:min(len(s.others), tablesFew)] {
		w.page.remember("%s chooses a table that does not fit: %s; change the table, or name its schema otherwise", s, other)
	}
	if more := len(s.others) - tablesFew; more > 0 {
		w.page.remember("%s chooses %d more tables that do not fit", s, more)
	}
	if len(s.fit) == 0 {
		w.page.set("outbox.tables", quote(s.String()), "No table fits yet: create one.")
		return
	}
	w.table, w.recognised = s.String(), s.best.table
	w.page.set("outbox.tables", quote(s.String()), comments...)
	w.columns(s.best)
}

func tablesFit(n int) string {
	if n == 1 {
		return "1 table fits"
	}
	return fmt.Sprintf("%d tables fit", n)
}

// someOf lists the first few.
func someOf(names []string) string {
	if more := len(names) - tablesFew; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:tablesFew], ", "), more)
	}
	return strings.Join(names, ", ")
}
