package config

import (
	"cmp"
	"fmt"
	"strings"
)

// anyText stands for any characters in a pattern.
const anyText = "*"

// tables allows one pattern for the schemas of several outboxes, which share the table's name.
func tables() rule {
	const allowed = "schema.table with * in the schema for any characters, such as tenant_*.outbox_events; names are as " +
		"in outbox.table"
	return typed(allowed, func(v string) string {
		names, ok := tableNames(v)
		switch {
		case !ok || len(names) != 2:
			return notAllowed
		case strings.Contains(names[1], anyText):
			return "the tables need one name: * may stand in the schema only"
		case !strings.Contains(names[0], anyText):
			return "without * in the schema it chooses one table: set outbox.table"
		}
		return ""
	})
}

// Named returns outbox.tables if it is set, else outbox.table.
func (o Outbox) Named() string { return cmp.Or(o.Tables, o.Table) }

var severalOutboxes = []relation{
	{
		keys:    []string{"outbox.tables", "outbox.table"},
		allowed: "one of the two",
		check: func(c *Config) string {
			if c.Outbox.Tables == "" || c.Outbox.Table == Default().Outbox.Table {
				return ""
			}
			return fmt.Sprintf("both %s and %s", c.Outbox.Tables, c.Outbox.Table)
		},
	},
}
