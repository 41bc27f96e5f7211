package store

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgtype"
)

// The types that the journal's event_id can have.
const (
	idUUID   = "uuid"
	idText   = "text"
	idBigint = "bigint"
)

func idElement(idType string) (element, array uint32) {
	switch idType {
	case idUUID:
		return pgtype.UUIDOID, pgtype.UUIDArrayOID
	case idBigint:
		return pgtype.Int8OID, pgtype.Int8ArrayOID
	}
	return pgtype.TextOID, pgtype.TextArrayOID
}

// appendID appends one array element: length and binary form of an id that is given in Postgres's text form.
func appendID(b []byte, idType string, text []byte) ([]byte, error) {
	switch idType {
	case idUUID:
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

// ids adds an array of ids; id(i) is the i-th in text form.
func (p *params) ids(idType string, n int, id func(i int) []byte) error {
	_, array := idElement(idType)
	b, err := appendIDs(make([]byte, 0, arrayHeaderSize+n*(4+16)), idType, n, id)
	if err != nil {
		return err
	}
	p.add(array, binaryFormat, b)
	return nil
}

// appendIDs appends an array of ids in binary form.
func appendIDs(b []byte, idType string, n int, id func(i int) []byte) ([]byte, error) {
	element, _ := idElement(idType)
	b = arrayHeader(b, element, n)
	var err error
	for i := range n {
		if b, err = appendID(b, idType, id(i)); err != nil {
			return b, err
		}
	}
	return b, nil
}

// idArray collects binary arrays of ids as the server sent them into one.
type idArray struct {
	elements []byte
	n        int
}

func (a *idArray) add(array []byte) error {
	if len(array) < 12 {
		return fmt.Errorf("read array of ids: %d bytes are too few", len(array))
	}
	if binary.BigEndian.Uint32(array) == 0 {
		return nil
	}
	if binary.BigEndian.Uint32(array) != 1 || binary.BigEndian.Uint32(array[4:]) != 0 || len(array) < arrayHeaderSize {
		return fmt.Errorf("read array of ids: it has nulls or more than one dimension")
	}
	a.n += int(binary.BigEndian.Uint32(array[12:]))
	a.elements = append(a.elements, array[arrayHeaderSize:]...)
	return nil
}

// param adds the collected ids as one array.
func (a *idArray) param(p *params, idType string) {
	element, array := idElement(idType)
	b := arrayHeader(make([]byte, 0, arrayHeaderSize+len(a.elements)), element, a.n)
	p.add(array, binaryFormat, append(b, a.elements...))
}
