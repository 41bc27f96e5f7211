package db

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Deletes reports that outbox rows go, at once or later.
func (s *DB) Deletes() bool { return s.Config.AfterPublish == record.Delete || s.Config.Retention > 0 }

const (
	maxIdentifier = 63 // bytes, NAMEDATALEN - 1
	defaultSchema = "public"
)

// Names are the tables, quoted and schema-qualified, ready to stand in SQL.
type Names struct {
	Schema, Outbox, DLQ, View string
	Source, Epoch, State      string
	Journal, Batch, Parked    string
	CatchUp, Version, Offset  string
	Request, Alarms, Edit     string
	Spool                     string

	OutboxSchema, OutboxTable string // unquoted
	DLQSchema, dlqTable       string // unquoted
}

func (s *DB) setNames() error {
	c := s.Config
	if c.Slot == "" {
		return fmt.Errorf("postgres.slot is empty")
	}
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	n := &s.Names
	var err error
	if n.OutboxSchema, n.OutboxTable, err = splitTable(c.Table, defaultSchema); err != nil {
		return fmt.Errorf("outbox.table %q: %w", c.Table, err)
	}
	n.DLQSchema, n.dlqTable = c.Schema, suffixed(n.OutboxTable, "_dlq")
	if c.DLQTable != "" {
		if n.DLQSchema, n.dlqTable, err = splitTable(c.DLQTable, c.Schema); err != nil {
			return fmt.Errorf("dlq.table %q: %w", c.DLQTable, err)
		}
	}
	own := func(table string) string { return Quote(c.Schema, table) }
	n.Schema = Quote(c.Schema)
	n.DLQ = Quote(n.DLQSchema, n.dlqTable)
	n.setOutbox(c.Schema, n.OutboxSchema, n.OutboxTable)
	n.Source, n.Epoch, n.State = own("cdc_relay_source"), own("cdc_relay_epoch"), own("cdc_relay_state")
	n.Journal, n.Batch = own("cdc_relay_journal"), own("cdc_relay_journal_batch")
	n.Parked, n.CatchUp = own("cdc_relay_parked"), own("cdc_relay_catch_up")
	n.Version, n.Offset, n.Request = own("cdc_relay_schema"), own("cdc_relay_offset"), own("cdc_relay_request")
	n.Alarms, n.Edit, n.Spool = own("cdc_relay_alarms"), own("cdc_relay_edit"), own("cdc_relay_spool")
	s.Config = c
	return nil
}

// setOutbox sets the names that depend on which outbox it is.
func (n *Names) setOutbox(own, schema, table string) {
	n.OutboxSchema, n.OutboxTable = schema, table
	n.Outbox = Quote(schema, table)
	n.View = Quote(own, suffixed(table, "_status"))
}

// splitTable reads schema.table. Names are taken as they are, not folded to lower case as SQL would; a name with a dot
// in it stands in double quotes.
func splitTable(s, schema string) (string, string, error) {
	var parts []string
	for rest := s; ; {
		var part string
		if strings.HasPrefix(rest, `"`) {
			end := closingQuote(rest)
			if end < 0 {
				return "", "", fmt.Errorf("the double quote is not closed")
			}
			part, rest = strings.ReplaceAll(rest[1:end], `""`, `"`), rest[end+1:]
		} else if dot := strings.IndexByte(rest, '.'); dot >= 0 {
			part, rest = rest[:dot], rest[dot:]
		} else {
			part, rest = rest, ""
		}
		if part == "" || len(part) > maxIdentifier || strings.ContainsRune(part, 0) {
			return "", "", fmt.Errorf("want schema.table, each name of 1 to %d bytes", maxIdentifier)
		}
		parts = append(parts, part)
		if rest == "" {
			break
		}
		if rest[0] != '.' {
			return "", "", fmt.Errorf("want a dot after the closing double quote")
		}
		rest = rest[1:]
	}
	switch len(parts) {
	case 1:
		return schema, parts[0], nil
	case 2:
		return parts[0], parts[1], nil
	}
	return "", "", fmt.Errorf("want schema.table, found %d names", len(parts))
}

// closingQuote is the index of the double quote that ends the quoted name at the start of s, or -1.
func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return i
	}
	return -1
}

// suffixed appends the suffix and shortens the name before it, at a character, to what Postgres keeps.
func suffixed(name, suffix string) string {
	for len(name)+len(suffix) > maxIdentifier {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name + suffix
}

// Quote returns the name as a quoted identifier; several parts make a qualified one.
func Quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// Literal returns the text as a string literal.
func Literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) { // the same with standard_conforming_strings off
		quoted = " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// SQL fills in the names of tables, {journal} and the like. What depends on the outbox's shape is [DB.SQL]'s.
func (n Names) SQL(text string) string {
	return strings.NewReplacer("{outbox}", n.Outbox, "{dlq}", n.DLQ, "{source}", n.Source, "{epoch}", n.Epoch,
		"{state}", n.State, "{journal}", n.Journal, "{batch}", n.Batch, "{parked}", n.Parked, "{catch_up}", n.CatchUp,
		"{version}", n.Version, "{offset}", n.Offset, "{request}", n.Request, "{alarms}", n.Alarms, "{edit}",
		n.Edit, "{spool}", n.Spool).Replace(text)
}
