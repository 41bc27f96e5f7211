package config

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Names of schemas, tables, columns and publications are taken exactly as written, upper case too, and quoted wherever
// they go into SQL. A name may be written in double quotes, as in SQL, with "" for each double quote.
const identifierAllowed = "a name as Postgres shows it, at most 63 bytes; or the same in double quotes, as in SQL"

// isIdentifier reports whether Postgres takes the name.
func isIdentifier(name string) bool {
	return name != "" && len(name) <= maxIdentifier && utf8.ValidString(name) && !strings.ContainsRune(name, 0)
}

// cutQuoted returns the text between the double quotes at the start of s, and the rest.
func cutQuoted(s string) (name, rest string, ok bool) {
	var b strings.Builder
	for rest, ok = strings.CutPrefix(s, `"`); ok; {
		part, after, closed := strings.Cut(rest, `"`)
		b.WriteString(part)
		if !closed {
			return "", "", false
		}
		rest, ok = strings.CutPrefix(after, `"`)
		if !ok {
			return b.String(), after, true
		}
		b.WriteByte('"')
	}
	return "", "", false
}

// nameOf is the name that a text stands for.
func nameOf(text string) (name string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return text, isIdentifier(text)
	}
	name, rest, ok := cutQuoted(text)
	return name, ok && rest == "" && isIdentifier(name)
}

func identifier() rule {
	r := typed(identifierAllowed, func(v string) string {
		_, ok := nameOf(v)
		return accept(ok)
	})
	r.read = func(v string) string { name, _ := nameOf(v); return name }
	return r
}

// SplitTable splits schema.table into names as Postgres shows them. The schema defaults to public. A name that contains
// a dot must be in double quotes.
func SplitTable(s string) (schema, name string) {
	names, ok := tableNames(s)
	switch {
	case ok && len(names) == 2:
		return names[0], names[1]
	case ok:
		return "public", names[0]
	}
	schema, name, found := strings.Cut(s, ".") // what its rule refuses
	if !found {
		return "public", s
	}
	return schema, name
}

// tableNames are the one or two names of a table.
func tableNames(s string) (names []string, ok bool) {
	for {
		var name, rest string
		if strings.HasPrefix(s, `"`) {
			if name, rest, ok = cutQuoted(s); !ok || rest != "" && rest[0] != '.' {
				return nil, false
			}
		} else {
			name = s
			if dot := strings.IndexByte(s, '.'); dot >= 0 {
				name = s[:dot]
			}
			rest = s[len(name):]
		}
		names = append(names, name)
		if !isIdentifier(name) || len(names) > 2 {
			return nil, false
		}
		if rest == "" {
			return names, true
		}
		s = rest[1:]
	}
}

// JoinTable returns schema.name in the form that [SplitTable] reads, with double quotes where a name needs them.
func JoinTable(schema, name string) string { return QuoteName(schema) + "." + QuoteName(name) }

// TableName returns the outbox table in the form of [JoinTable].
func (c *Config) TableName() string { return JoinTable(SplitTable(c.Outbox.Table)) }

// QuoteName returns a name as the configuration reads it: in double quotes if it would otherwise be another name.
func QuoteName(name string) string {
	if strings.ContainsAny(name, `."`) || strings.TrimSpace(name) != name {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}

func table() rule {
	return typed("schema.table, each "+identifierAllowed+", which a name with a dot in it needs", func(v string) string {
		_, ok := tableNames(v)
		return accept(ok)
	})
}

func columnList() rule {
	const allowed = "column names separated by commas, in double quotes where they have a comma or a space, each " +
		"optionally followed by asc or desc"
	return typed(allowed, func(v string) string {
		for {
			v = strings.TrimLeft(v, " \t")
			var name, direction string
			if strings.HasPrefix(v, `"`) {
				quoted, rest, ok := cutQuoted(v)
				if !ok {
					return "a double quote is not closed"
				}
				name = quoted
				direction, v, ok = strings.Cut(rest, ",")
				if !ok {
					v = ","
				}
			} else {
				term, rest, more := strings.Cut(v, ",")
				name, direction, _ = strings.Cut(strings.TrimSpace(term), " ")
				if v = rest; !more {
					v = ","
				}
				if strings.ContainsAny(name, `()'";`) { // an expression; a name with these stands in double quotes
					name = ""
				}
			}
			direction = strings.TrimSpace(direction)
			known := direction == "" || strings.EqualFold(direction, "asc") || strings.EqualFold(direction, "desc")
			if !isIdentifier(name) || !known {
				return fmt.Sprintf("%q is not a column, or not followed by asc or desc", name)
			}
			if v == "," {
				return ""
			}
		}
	})
}
