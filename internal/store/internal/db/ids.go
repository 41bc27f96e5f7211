package db

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// CheckIDs names every id that is not of the type that the outbox's ids are of.
func CheckIDs(o *Table, ids []string) error {
	var errs []error
	for _, id := range ids {
		if _, err := AppendID(nil, o.IDType, []byte(id)); err != nil {
			errs = append(errs, fmt.Errorf("%w: id: found %q; allowed: %s", record.ErrFilter, id, allowedIDs[o.IDType]))
		}
	}
	return errors.Join(errs...)
}

// allowedIDs says for people what ids look like.
var allowedIDs = map[string]string{
	IDUUID: "a uuid such as 019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01", idBigint: "a whole number of type bigint",
	idText: "text without a zero byte",
}

// The types that the journal's event_id can have.
const (
	IDUUID   = "uuid"
	idText   = "text"
	idBigint = "bigint"
)

// TextIDs reports whether the outbox's ids are text, which can be longer than the journal's key holds.
func (o *Table) TextIDs() bool { return o.IDType == idText }

// IDElement returns the OIDs of an id type and of its array.
func IDElement(idType string) (element, array uint32) {
	switch idType {
	case IDUUID:
		return pgtype.UUIDOID, pgtype.UUIDArrayOID
	case idBigint:
		return pgtype.Int8OID, pgtype.Int8ArrayOID
	}
	return pgtype.TextOID, pgtype.TextArrayOID
}

// AppendID appends one array element: length and binary form of an id that is given in Postgres's text form.
func AppendID(b []byte, idType string, text []byte) ([]byte, error) {
	switch idType {
	case IDUUID:
		if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
			return b, fmt.Errorf("event id %.64q is not a uuid", text)
		}
		b = binary.BigEndian.AppendUint32(b, 16)
		from := len(b)
		b = append(b, make([]byte, 16)...)
		to := b[from:]
		for _, part := range [5][3]int{{0, 8, 0}, {9, 13, 4}, {14, 18, 6}, {19, 23, 8}, {24, 36, 10}} {
			if _, err := hex.Decode(to[part[2]:], text[part[0]:part[1]]); err != nil {
				return b[:from], fmt.Errorf("event id %.64q is not a uuid", text)
			}
		}
		return b, nil
	case idBigint:
		v, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return b, fmt.Errorf("event id %.64q is not a bigint", text)
		}
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(v)), nil
	}
	if bytes.IndexByte(text, 0) >= 0 {
		return b, fmt.Errorf("event id %.64q has a zero byte", text)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...), nil
}

// IDs adds an array of ids; id(i) is the i-th in text form.
func (p *Params) IDs(idType string, n int, id func(i int) []byte) error {
	_, array := IDElement(idType)
	b, err := AppendIDs(make([]byte, 0, ArrayHeaderSize+n*(4+16)), idType, n, id)
	if err != nil {
		return err
	}
	p.Add(array, BinaryFormat, b)
	return nil
}

// AppendIDs appends an array of ids in binary form.
func AppendIDs(b []byte, idType string, n int, id func(i int) []byte) ([]byte, error) {
	element, _ := IDElement(idType)
	b = ArrayHeader(b, element, n)
	var err error
	for i := range n {
		if b, err = AppendID(b, idType, id(i)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// ID adds one id.
func (p *Params) ID(idType string, text []byte) error {
	id, err := AppendID(nil, idType, text)
	if err != nil {
		return err
	}
	element, _ := IDElement(idType)
	p.Add(element, BinaryFormat, id[4:])
	return nil
}
