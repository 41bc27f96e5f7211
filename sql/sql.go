// Package sql holds the tables of the relay and renders them for one outbox. It talks to no database: package store
// runs the statements.
//
// Each part of the tables has a schema and the steps that came after it. Neither is changed after a release; a later
// version adds a step that is safe while the release before it runs, that is, it adds tables, columns with defaults and
// indexes, and drops nothing.
//
// Tested by package store, which runs all of it on a real Postgres.
package sql

import (
	"embed"
	"fmt"
	"hash/fnv"
)

//go:embed *.sql
var files embed.FS

// Names fill the steps. Every one is ready to stand in SQL: quoted identifiers, type names, expressions.
type Names struct {
	Schema        string // where the relay's own tables live
	Outbox        string // schema-qualified
	OutboxLiteral string // the same as a string literal, for ::regclass
	DLQ, View     string // schema-qualified; View is empty for one of several outboxes, which have none
	DLQLiteral    string // DLQ as a string literal

	ID, EventType, Payload, Headers, CreatedAt string // the outbox's columns
	AggregateType, AggregateID                 string // "" = it has no such column
	Extra                                      []string

	IDType         string // of the journal's event_id: uuid, text or bigint
	PayloadType    string
	HeadersType    string
	PublishedWhen  string // a condition on an outbox row
	OwnPublishedAt string // an expression on an outbox row

	Shown
}

// Shown is an event as the view has it.
type Shown struct {
	Event   []Field
	Created string // an expression on o.fields: when the row was made
	HasJSON bool   // some column of the outbox is json
}

// Field is a column of the view: an expression on the outbox row as the jsonb object o.fields.
type Field struct{ Name, Expression string }

// ViewMark is the comment of the view, by which one that would be made otherwise now is known.
func (n Names) ViewMark() (string, error) {
	text, err := render("status.sql", n)
	h := fnv.New64a()
	h.Write([]byte(text))
	return fmt.Sprintf("made by cdc-relay init, %016x", h.Sum64()), err
}

// CollateC makes text ids compare by bytes, whatever the database's collation: the journal's index must
// survive an upgrade of the C library, and equality is the same.
func (n Names) CollateC() string {
	if n.IDType == "text" {
		return ` COLLATE "C"`
	}
	return ""
}

// Fields is an outbox row as a jsonb object. A json column holds what jsonb refuses: the escape of NUL, and halves of
// surrogate pairs. They are left out; the other alternative keeps a backslash that is escaped itself from being taken
// for the beginning of one.
func (n Names) Fields() string {
	if !n.HasJSON {
		return "to_jsonb(cdc_relay_row)"
	}
	return `regexp_replace(to_json(cdc_relay_row)::text, ` +
		`'(\\\\)|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1', 'g')::jsonb`
}

// Step is one version of one part of the tables.
type Step struct {
	Part    string // "relay", or what belongs to one outbox; see the constants
	Version int
	SQL     string // one or more statements, to be run in one transaction
}

// part is a part of the tables: the schema of 0.1.0, which has the version that its development ended with, and the
// files of later steps, each one version more.
type part struct {
	schema  string
	version int
	later   []string
}

var (
	relay  = part{schema: "relay.sql", version: 13, later: []string{"relay_0014.sql", "relay_0015.sql"}}
	outbox = part{schema: "outbox.sql", version: 7}
)

// Relay is the part that all outboxes of a schema share.
const Relay = "relay"

// OutboxPart names the part that belongs to the outbox with these dead letters.
func OutboxPart(dlq string) string { return "outbox " + dlq }

// TooOldError reports tables of a version before 0.1.0, which nothing upgrades.
type TooOldError struct {
	Part        string
	Has, Oldest int
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("the relay's tables (%s) have version %d, from before 0.1.0, and can be upgraded from "+
		"version %d on: "+
		"let the program that made them publish every row, stop it, set postgres.schema to a new schema and run "+
		"cdc-relay init", e.Part, e.Has, e.Oldest)
}

// Steps returns what brings a part to its present version: all of it where there is nothing (version 0), or the steps
// above the given version, oldest first. The error is a [TooOldError] for a version before 0.1.0.
func Steps(name string, above int, n Names) ([]Step, error) {
	p := relay
	if name != Relay {
		p = outbox
	}
	files := p.later
	var version int
	switch {
	case above == 0:
		files, version = append([]string{p.schema}, files...), p.version
	case above < p.version:
		return nil, &TooOldError{Part: name, Has: above, Oldest: p.version}
	default:
		files, version = files[min(above-p.version, len(files)):], above+1
	}
	var steps []Step
	for i, file := range files {
		text, err := render(file, n)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{Part: name, Version: version + i, SQL: text})
	}
	return steps, nil
}

// Table is the outbox of contract "the tables", for a database that has none.
func Table(n Names) (string, error) { return render("table.sql", n) }

// View is the view of an outbox's statuses, which goes with a table that is dropped with all that depends on it. It
// replaces one that is there.
func View(n Names) (string, error) { return render("view.sql", n) }

// render is a file with its names filled in.
func render(name string, n Names) (string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read migration %s: %w", name, err)
	}
	return n.fill(string(text), name)
}
