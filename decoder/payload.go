package decoder

import (
	"cmp"
	"errors"
)

// ErrRetyped reports that the payload column has another type in the rows that follow. Record the rows before it, then
// read the stream again from the confirmed position.
var ErrRetyped = errors.New("the payload column has another type from here on; what comes before is recorded first")

// Payload tracks the type of the payload column in the rows of a stream, which can differ from the one in the catalog:
// the WAL has rows as the table was when they were committed. It is used by one goroutine.
type Payload struct {
	Type string // of the rows that come: jsonb, json, text or bytea
	Used bool   // a message was made of such a row: the caller says so

	catalog string
	oid     uint32 // as announced last; 0: not yet
}

// NewPayload returns a Payload that begins with the type in the catalog.
func NewPayload(catalog string) Payload { return Payload{Type: catalog, catalog: catalog} }

// Becomes sets the type to the one with the OID that a Relation message announced. It reports whether Type has changed,
// or [ErrRetyped] if rows of the former type were used. When the stream is read again, those rows are recorded and not
// used, so the second attempt passes this place, also within a transaction.
func (p *Payload) Becomes(oid uint32) (changed bool, err error) {
	if oid == p.oid {
		return false, nil
	}
	name := payloadType(oid)
	if p.Used && (name == "" || name != p.Type) {
		return false, ErrRetyped
	}
	was := p.Type
	p.oid, p.Type = oid, cmp.Or(name, p.catalog)
	return p.Type != was, nil
}

// payloadType is the name of a type by its OID (src/include/catalog/pg_type.dat); varchar is text. Empty: one of the
// database's own. A domain has its own OID, which tells nothing of the type below it: the catalog does.
func payloadType(oid uint32) string {
	switch oid {
	case 3802:
		return "jsonb"
	case 114:
		return "json"
	case 25, 1043:
		return "text"
	case byteaOID:
		return "bytea"
	}
	return ""
}
