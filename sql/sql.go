// Package sql holds the tables of the relay as versioned steps of SQL, and renders them for one outbox. It talks to no
// database: package store runs the steps.
//
// A step is never changed after a release; a later version adds a step that is safe while the release before it runs,
// that is, it adds tables, columns with defaults and indexes, and takes nothing away.
//
// Tested by package store, which runs every step on a real Postgres.
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
	DLQ, View     string // schema-qualified
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

// Shown is what the view says of an event.
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

// CollateC is what makes text ids compare by bytes, whatever the database's collation: the journal's index must
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

// The steps' files, per part and version, from 1.
var (
	relay = []string{"relay_0001.sql", "relay_0002.sql", "relay_0003.sql", "relay_0004.sql", "relay_0005.sql",
		"relay_0006.sql", "relay_0007.sql", "relay_0008.sql", "relay_0009.sql", "relay_0010.sql", "relay_0011.sql",
		"relay_0012.sql", "relay_0013.sql"}
	outbox = []string{"outbox_0001.sql", "outbox_0002.sql", "outbox_0003.sql", "outbox_0004.sql", "outbox_0005.sql",
		"outbox_0006.sql", "outbox_0007.sql"}
)

// Relay is the part that all outboxes of a schema share.
const Relay = "relay"

// OutboxPart names the part that belongs to the outbox with these dead letters.
func OutboxPart(dlq string) string { return "outbox " + dlq }

// Steps are the steps of a part whose version is above the given one, oldest first.
func Steps(part string, above int, n Names) ([]Step, error) {
	names := relay
	if part != Relay {
		names = outbox
	}
	var steps []Step
	for i := above; i < len(names); i++ {
		text, err := n.step(names[i])
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{Part: part, Version: i + 1, SQL: text})
	}
	return steps, nil
}

// Table is the outbox of contract "the tables", for a database that has none.
func Table(n Names) (string, error) { return render("table_0001.sql", n) }

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
