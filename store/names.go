package store

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const (
	maxIdentifier = 63 // bytes, NAMEDATALEN - 1
	defaultSchema = "public"
)

// names are the tables, quoted and schema-qualified, ready to stand in SQL.
type names struct {
	schema, outbox, dlq, view string
	source, epoch, state      string
	journal, batch, parked    string
	catchUp, version, offset  string
	request                   string

	outboxSchema, outboxTable string // unquoted
	dlqSchema, dlqTable       string // unquoted
}

func (s *Store) setNames() error {
	c := s.config
	if c.Slot == "" {
		return fmt.Errorf("postgres.slot is empty")
	}
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	n := &s.names
	var err error
	if n.outboxSchema, n.outboxTable, err = splitTable(c.Table, defaultSchema); err != nil {
		return fmt.Errorf("outbox.table %q: %w", c.Table, err)
	}
	n.dlqSchema, n.dlqTable = c.Schema, suffixed(n.outboxTable, "_dlq")
	if c.DLQTable != "" {
		if n.dlqSchema, n.dlqTable, err = splitTable(c.DLQTable, c.Schema); err != nil {
			return fmt.Errorf("dlq.table %q: %w", c.DLQTable, err)
		}
	}
	own := func(table string) string { return quote(c.Schema, table) }
	n.schema = quote(c.Schema)
	n.outbox = quote(n.outboxSchema, n.outboxTable)
	n.dlq = quote(n.dlqSchema, n.dlqTable)
	n.view = own(suffixed(n.outboxTable, "_status"))
	n.source, n.epoch, n.state = own("cdc_relay_source"), own("cdc_relay_epoch"), own("cdc_relay_state")
	n.journal, n.batch = own("cdc_relay_journal"), own("cdc_relay_journal_batch")
	n.parked, n.catchUp = own("cdc_relay_parked"), own("cdc_relay_catch_up")
	n.version, n.offset, n.request = own("cdc_relay_schema"), own("cdc_relay_offset"), own("cdc_relay_request")
	s.config = c
	return nil
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

func quote(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

func literal(s string) string {
	quoted := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) { // the same with standard_conforming_strings off
		quoted = " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}

// sql fills in the names of tables, {journal} and the like. What depends on the outbox's shape is [Outbox]'s own.
func (n names) sql(text string) string {
	return strings.NewReplacer("{outbox}", n.outbox, "{dlq}", n.dlq, "{source}", n.source, "{epoch}", n.epoch,
		"{state}", n.state, "{journal}", n.journal, "{batch}", n.batch, "{parked}", n.parked, "{catch_up}", n.catchUp,
		"{version}", n.version, "{offset}", n.offset, "{request}", n.request).Replace(text)
}
