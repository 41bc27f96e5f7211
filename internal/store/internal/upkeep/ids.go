package upkeep

import (
	"encoding/binary"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

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
	if binary.BigEndian.Uint32(array) != 1 || binary.BigEndian.Uint32(array[4:]) != 0 || len(array) < db.ArrayHeaderSize {
		return fmt.Errorf("read array of ids: it has nulls or more than one dimension")
	}
	a.n += int(binary.BigEndian.Uint32(array[12:]))
	a.elements = append(a.elements, array[db.ArrayHeaderSize:]...)
	return nil
}

// param adds the collected ids as one array.
func (a *idArray) param(p *db.Params, idType string) {
	element, array := db.IDElement(idType)
	b := db.ArrayHeader(make([]byte, 0, db.ArrayHeaderSize+len(a.elements)), element, a.n)
	p.Add(array, db.BinaryFormat, append(b, a.elements...))
}
