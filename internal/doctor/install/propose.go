package install

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Line is a key of the configuration with a value that fits the outbox.
type Line struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// column is one of the outbox's, as far as a proposal needs it.
type column struct {
	name, kind string
	length     int // of a varchar; 0: no bound
	nullable   bool
	words      []string // that it can hold: of an enum or a CHECK
}

const columnsSQL = `SELECT a.attname::text, format_type(a.atttypid, NULL),
 CASE WHEN a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END,
 NOT a.attnotnull,
 ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = a.atttypid ORDER BY e.enumsortorder),
 coalesce((SELECT string_agg(pg_get_constraintdef(c.oid), ' ') FROM pg_constraint c
  WHERE c.conrelid = a.attrelid AND c.contype = 'c' AND c.conkey = ARRAY[a.attnum]), '')
FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

var literal = regexp.MustCompile(`'((?:[^']|'')*)'`)

// proposals are lines for the configuration by which rows of a table that someone else has made show what became of
// their events. They are for keys that are not set, and nothing is changed by them.
func proposals(ctx context.Context, cfg config.Config, o store.Outbox) ([]Line, error) {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var columns []column
	err = store.ReadOnly(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, columnsSQL, o.OID)
		if err == nil {
			columns, err = pgx.CollectRows(rows, scanColumn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the outbox's columns: %w", err)
	}
	return propose(cfg.Outbox, columns), nil
}

func scanColumn(row pgx.CollectableRow) (c column, err error) {
	var checks string
	err = row.Scan(&c.name, &c.kind, &c.length, &c.nullable, &c.words, &checks)
	for _, found := range literal.FindAllStringSubmatch(checks, -1) {
		c.words = append(c.words, strings.ReplaceAll(found[1], "''", "'"))
	}
	return c, err
}

// What applications call these columns, in lower case and without underscores, and the states that they know.
var (
	flagNames = words("processed published sent dispatched completed done delivered relayed")
	timeNames = words("processedat publishedat sentat dispatchedat completedat deliveredat relayedat " +
		"processedon publishedon processedonutc publishedonutc processedatutc")
	stateNames  = words("status state processingstatus publishstatus")
	countNames  = words("retrycount retries attempts attemptcount retryattempts tries trycount failurecount")
	errorNames  = words("lasterror error errormessage lasterrormessage errortext failurereason lastfailure")
	failedNames = words("failedat deadat")

	publishedStates = words("processed published sent dispatched completed done delivered succeeded success relayed")
	failedStates    = words("failed failure error dead")
	pendingStates   = words("pending new created ready queued waiting unprocessed open")
)

func words(list string) []string { return strings.Fields(list) }

// said holds the proposals so far.
type said struct {
	published         string // condition
	mark, dead, again []string
	ofFailures        bool
}

func propose(cfg config.Outbox, columns []column) (lines []Line) {
	var s said
	mapped := []string{cfg.Columns.ID, cfg.Columns.AggregateType, cfg.Columns.AggregateID, cfg.Columns.EventType,
		cfg.Columns.Payload, cfg.Columns.Headers, cfg.Columns.CreatedAt}
	for _, c := range columns {
		if !slices.Contains(mapped, c.name) {
			s.add(c)
		}
	}
	marks := strings.Join(s.mark, ", ")
	if marks == "published_at = now()" { // the default
		marks, s.published = "", ""
	}
	add := func(key, set, value string) {
		if set == "" && value != "" {
			lines = append(lines, Line{"outbox." + key, value})
		}
	}
	if cfg.AfterPublish == config.AfterPublishMark {
		add("published_when", cfg.PublishedWhen, s.published)
		add("mark_set", cfg.MarkSet, marks)
	}
	if s.ofFailures && cfg.AfterPublish != config.AfterPublishKeep {
		add("dead_set", cfg.DeadSet, strings.Join(s.dead, ", "))
		add("retry_set", cfg.RetrySet, strings.Join(s.again, ", "))
	}
	return lines
}

// add takes in what one column can show.
func (s *said) add(c column) {
	plain := strings.ReplaceAll(strings.ToLower(c.name), "_", "")
	name := quoted(c.name)
	switch is := func(names []string) bool { return slices.Contains(names, strings.TrimPrefix(plain, "is")) }; {
	case is(stateNames):
		s.addState(c, name)
	case is(flagNames) && c.kind == "boolean":
		s.mark = append(s.mark, name+" = true")
		if s.published == "" || strings.HasSuffix(s.published, "IS NOT NULL") {
			s.published = name
		}
	case is(timeNames) && strings.HasPrefix(c.kind, "timestamp"):
		s.mark = append(s.mark, name+" = now()")
		if s.published == "" {
			s.published = name + " IS NOT NULL"
		}
	case is(countNames) && slices.Contains([]string{"smallint", "integer", "bigint"}, c.kind):
		s.fail(name + " = {attempts}")
	case is(errorNames):
		s.addError(c, name)
	case is(failedNames) && strings.HasPrefix(c.kind, "timestamp"):
		s.dead = append(s.dead, name+" = now()")
	}
}

// addState takes in a column of states, if it is known which of them says that an event is published.
func (s *said) addState(c column, name string) {
	state := func(known []string) string {
		for _, k := range known {
			for _, word := range c.words {
				if strings.EqualFold(word, k) {
					return name + " = '" + strings.ReplaceAll(word, "'", "''") + "'"
				}
			}
		}
		return ""
	}
	published, failed, pending := state(publishedStates), state(failedStates), state(pendingStates)
	if published == "" {
		return
	}
	s.published = published
	s.mark = append(s.mark, published)
	if failed != "" && pending != "" { // else nothing would take the failure back
		s.ofFailures = true
		s.dead, s.again = append(s.dead, failed), append(s.again, pending)
	}
}

func (s *said) addError(c column, name string) {
	value := "{last_error}"
	switch {
	case c.kind == "json" || c.kind == "jsonb":
		value = "to_" + c.kind + "({last_error})"
	case c.kind != "text" && c.kind != "character varying" && c.kind != "character":
		return
	case c.length > 0:
		value = "left({last_error}, " + strconv.Itoa(c.length) + ")"
	}
	s.fail(name + " = " + value)
	if c.nullable {
		s.mark = append(s.mark, name+" = NULL")
	}
}

// fail is for what both kinds of failures write.
func (s *said) fail(assignment string) {
	s.ofFailures = true
	s.dead, s.again = append(s.dead, assignment), append(s.again, assignment)
}

var simpleName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quoted is a column's name as SQL must have it.
func quoted(name string) string {
	if simpleName.MatchString(name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// YAML is the lines as they stand in a configuration file.
func YAML(lines []Line) (text []string) {
	if len(lines) > 0 {
		text = append(text, "outbox:")
	}
	for _, l := range lines {
		value := l.Value
		if strings.HasPrefix(value, `"`) || strings.Contains(value, ": ") || strings.Contains(value, " #") {
			value = strconv.Quote(value)
		}
		text = append(text, "  "+strings.TrimPrefix(l.Key, "outbox.")+": "+value)
	}
	return text
}
