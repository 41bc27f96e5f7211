package decoder

import (
	"cmp"
	"errors"
)

// ErrRetyped reports that the rows that follow have a payload of another type than the rows before.
// What those are has to be recorded, and the stream read again from what it then has confirmed.
var ErrRetyped = errors.New("the payload column has another type from here on; what comes before is recorded first")

// Payload follows which type the payload column has in the rows of a stream. Rows stand in the WAL as the table was
// when they were committed, and the catalog tells what it is now. One goroutine uses it.
type Payload struct {
	Type string // of the rows that come: jsonb, json, text or bytea
	Used bool   // a message was made of such a row: the caller says so

	catalog string
	oid     uint32 // as announced last; 0: not yet
}

// NewPayload begins with the type that the catalog has.
func NewPayload(catalog string) Payload { return Payload{Type: catalog, catalog: catalog} }

// Becomes takes the OID of the type that a Relation message has announced. It reports whether Type has changed, or
// ErrRetyped. Who reads the same again, with all that came before recorded, makes no message of it and so gets past
// that place, also in the middle of a transaction, which cannot be confirmed in part.
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
