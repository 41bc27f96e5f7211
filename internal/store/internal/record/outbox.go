package record

import (
	"errors"
	"fmt"
	"strings"
)

// Outbox describes the outbox table by the catalog.
type Outbox struct {
	OID            uint32
	OIDs           []uint32 // the table's own and, if it is partitioned, those of all its partitions
	Partitioned    bool
	Schema, Name   string
	IDType         string   // of event_id in the journal: uuid, text (also for varchar) or bigint (for all integers)
	PayloadType    string   // jsonb, json, text or bytea (of a domain: the type below it)
	HeadersType    string   // jsonb or json; text when the column is one; "" = no such column
	HasPublishedAt bool     // there is a column published_at
	Zone           string   // of the columns of type timestamp without time zone; "" = there are none
	CreatedZone    string   // Zone, if created_at is one of them and the zone is not UTC; else ""
	Columns        []string // all of the table's, in its order

	// Ready to stand in SQL, defaults filled in.
	OrderBy       string
	PublishedWhen string
	MarkSet       string // "" = nothing is marked
	DeadSet       string // "" = a dead letter does not show in its row
	RetrySet      string // "" = nor does a failed attempt
}

// SQL is the quoted name.
func (n Named) SQL() string { return quote(n.Schema) + "." + quote(n.Name) }

// Beside says why the table cannot be an outbox of the slot that another one is of, which shares the journal and the
// dead letters with it; "": it can.
func (o Outbox) Beside(other Outbox) string {
	said := func(what, own, others string) string {
		return fmt.Sprintf("its %s are %s, and those of %s.%s are %s", what, own, other.Schema, other.Name, others)
	}
	json := func(t string) string { return strings.Replace(t, "jsonb", "json", 1) }
	switch {
	case o.IDType != other.IDType:
		return said("ids", o.IDType, other.IDType)
	case json(o.PayloadType) != json(other.PayloadType):
		return said("payloads", o.PayloadType, other.PayloadType)
	}
	return ""
}

// ErrNoOutbox reports that the outbox table does not exist.
var ErrNoOutbox = errors.New("the outbox table does not exist")

// ErrInherited reports a table that inherits from the outbox.
var ErrInherited = errors.New("hides the order of its rows, as the stream brings them as another table's, or not at " +
	"all")

// Named is one of several outboxes.
type Named struct {
	OID          uint32
	Schema, Name string
	Published    bool  // by the publication
	Source       int32 // its number, of one that is registered
	// Form is the same for tables that differ in their names only, and changes with a table; empty: it is to be read.
	Form  string
	Whole bool // the publication has all rows and columns of it
}
