package outbox

import (
	"strings"
)

// Pattern chooses tables by their names, in which * stands for any characters.
type Pattern struct{ Schema, Table string }

// Several reports whether it may fit more than one table.
func (p Pattern) Several() bool { return strings.Contains(p.Schema+p.Table, "*") }

// Fits reports whether the pattern chooses the table.
func (p Pattern) Fits(schema, table string) bool {
	return fits(p.Schema, schema) && fits(p.Table, table)
}

func fits(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	first, rest := parts[0], parts[1:]
	name, found := strings.CutPrefix(name, first)
	if !found || len(rest) == 0 {
		return found && name == ""
	}
	for _, part := range rest[:len(rest)-1] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, rest[len(rest)-1])
}

// Like are the patterns of schema and table as LIKE has them.
func (p Pattern) Like() (schema, table string) { return like(p.Schema), like(p.Table) }

func like(pattern string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace(pattern)
}
