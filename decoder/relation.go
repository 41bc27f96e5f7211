package decoder

import (
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Relation describes a table as a Relation message does: with its published columns, so without generated ones and
// those that the publication's column list omits.
type Relation struct {
	OID          uint32
	Schema, Name string // Schema is empty for pg_catalog
	Columns      []Column
}

// Column is one published column.
type Column struct {
	Name string
	Type uint32 // the type's OID, such as 17 for bytea
	Key  bool   // part of the replica identity
}

// TypeOf returns the OID of a column's type; 0 if there is no such column.
func (r *Relation) TypeOf(column string) uint32 {
	for _, c := range r.Columns {
		if c.Name == column {
			return c.Type
		}
	}
	return 0
}

// byteaOID is the type whose text form is a coding and not the value (src/include/catalog/pg_type.dat).
const byteaOID = 17

// noColumn stands for a column that the configuration does not name.
const noColumn = -1

// binding says where in a relation's rows the event's columns stand. Of a foreign relation only oid and count matter.
type binding struct {
	oid     uint32
	name    string // for errors
	foreign bool
	count   int // columns in each row
	source  int32
	rows    *counter // of the source

	id, eventType, payload                         int
	aggregateType, aggregateID, headers, createdAt int // or noColumn
	seq                                            int // or noColumn
	extra                                          []int
	bytea                                          []int // the mapped columns, each once, that are bytea
}

// relation reads Byte1('R') Int32(OID) String(schema) String(name) Int8(replica identity) Int16(number of columns),
// then per column Int8(flags, 1 = key) String(name) Int32(type OID) Int32(type modifier).
func (d *Decoder) relation(data []byte) (Message, error) {
	r := reader{data: data, off: 1}
	rel := &Relation{OID: r.uint32(), Schema: string(r.string()), Name: string(r.string())}
	r.uint8()
	count := int(r.uint16())
	for range count {
		if r.fault != "" {
			break
		}
		flags, name, oid := r.uint8(), r.string(), r.uint32()
		r.uint32()
		rel.Columns = append(rel.Columns, Column{Name: string(name), Type: oid, Key: flags&1 != 0})
	}
	if err := d.finish(&r); err != nil {
		return Message{}, err
	}
	b := &binding{oid: rel.OID, name: tableName(rel), count: count, foreign: !d.bound[rel.OID]}
	if b.foreign && d.sources != nil {
		source, is, err := d.sources(rel)
		if err != nil {
			return Message{}, &SourceError{Table: b.name, Cause: err}
		}
		b.source, b.foreign = source, !is
	}
	if !b.foreign {
		if b.rows = d.counters[b.source]; b.rows == nil {
			b.rows = new(counter)
			d.counters[b.source] = b.rows
		}
		if err := d.bind(b, rel); err != nil {
			return Message{}, err
		}
	}
	d.relations[rel.OID] = b
	d.last = nil // it may be the one that was just replaced
	m := Message{Kind: RelationMessage, Wire: wireRelation, OID: rel.OID, Source: b.source, Relation: rel}
	if b.foreign {
		m.Kind, m.Foreign = Ignored, true
	}
	return m, nil
}

// Lacks returns a *[ColumnError] if rows of the relation have no column by one of the names.
func Lacks(columns outbox.Columns, rel *Relation) error {
	d := Decoder{columns: columns}
	return d.bind(new(binding), rel)
}

// bind finds the configured columns in the relation by name.
func (d *Decoder) bind(b *binding, rel *Relation) error {
	c := &d.columns
	b.aggregateType, b.aggregateID, b.headers, b.createdAt = noColumn, noColumn, noColumn, noColumn
	b.seq = slices.IndexFunc(rel.Columns, func(have Column) bool { return have.Name == c.Seq && isWhole(have.Type) })
	b.extra = make([]int, len(c.Extra))
	type wanted struct {
		column, key string
		at          *int
	}
	wants := []wanted{
		{c.ID, "outbox.columns.id", &b.id},
		{c.AggregateType, "outbox.columns.aggregate_type", &b.aggregateType},
		{c.AggregateID, "outbox.columns.aggregate_id", &b.aggregateID},
		{c.EventType, "outbox.columns.event_type", &b.eventType},
		{c.Payload, "outbox.columns.payload", &b.payload},
		{c.Headers, "outbox.columns.headers", &b.headers},
		{c.CreatedAt, "outbox.columns.created_at", &b.createdAt},
	}
	for i, column := range c.Extra {
		wants = append(wants, wanted{column, "", &b.extra[i]})
	}
	for _, want := range wants {
		if want.column == "" && *want.at == noColumn {
			continue
		}
		at := slices.IndexFunc(rel.Columns, func(have Column) bool { return have.Name == want.column })
		if at < 0 {
			return columnError(rel, want.column, want.key)
		}
		*want.at = at
		if rel.Columns[at].Type == byteaOID && !slices.Contains(b.bytea, at) {
			b.bytea = append(b.bytea, at)
		}
	}
	return nil
}

// isWhole reports whether a type, by its OID, is bigint, smallint or integer.
func isWhole(oid uint32) bool { return oid == 20 || oid == 21 || oid == 23 }

func columnError(rel *Relation, column, key string) *ColumnError {
	e := &ColumnError{Table: tableName(rel), Column: column, Key: key, Have: make([]string, len(rel.Columns))}
	for i, c := range rel.Columns {
		e.Have[i] = c.Name
	}
	return e
}

// tableName is the relation as SQL writes it.
func tableName(rel *Relation) string {
	schema := rel.Schema
	if schema == "" {
		schema = "pg_catalog"
	}
	return fmt.Sprintf("%s.%s", quoteIdentifier(schema), quoteIdentifier(rel.Name))
}
