package verify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
)

// State is a row's state in the relay's tables.
type State uint8

// The states.
const (
	Pending         State = iota // they know nothing of it
	StatedPublished              // published, by the journal or by itself
	StatedParked                 // waits in the relay's table
	StatedDead                   // a dead letter
)

// Row is a row of the outbox as an audit takes it.
type Row struct {
	ID    string
	Topic string
	Key   []byte // nil = without a key
	Value Digest
	State State
	Place Place // where the journal has it, or [Somewhere]; the zero Place: it does not say
	Order int64 // its place in the table's order; rows with the same number have none among them
	Made  Made  // when it says that it was made
}

// Made tells times apart, at which a row or the row of a record says that it was made; 0 = it does not say.
type Made uint32

// MadeAt is of a time in microseconds since the Unix epoch.
func MadeAt(micros int64) Made { return max(Made(uint64(micros)>>32^uint64(micros)), 1) }

// Another reports whether the two are of different events.
func (m Made) Another(of Made) bool { return m != of && m != 0 && of != 0 }

// Auditor compares the rows of a table with the records of topics, however many: what it is given it writes to files,
// by the digests of the ids, and compares file by file: a 256th of the rows is in memory at a time. It takes about 230
// bytes of temporary disk space for each row and its record. Unlike the [Judge] it takes rows in any order, and does
// not ask whether duplicates are rewinds.
//
// Rows come from one goroutine, then records from any number, then [Auditor.Finish].
type Auditor struct {
	dir           string
	rows, records *buckets
	order, lost   *sorter

	mu     sync.Mutex // guards what follows
	names  []string   // of topics, by number
	topics map[string]uint32
}

// NewAuditor makes its files in a directory of its own under the given one; empty: the system's for temporary files.
func NewAuditor(under string) (*Auditor, error) {
	dir, err := os.MkdirTemp(under, "cdc-relay-verify-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for temporary files: %w; nothing was compared: name with "+
			"--temp or TMPDIR a directory that this process may write to (230 bytes for each row and its record)", err)
	}
	return &Auditor{
		dir: dir, topics: map[string]uint32{}, order: newSorter(dir), lost: newSorter(dir),
		rows: newBuckets(dir, "rows-"), records: newBuckets(dir, "records-"),
	}, nil
}

// Close removes the files.
func (a *Auditor) Close() error {
	return errors.Join(a.order.close(), a.lost.close(), a.rows.close(), a.records.close(), os.RemoveAll(a.dir))
}

// topic is the number of a topic.
func (a *Auditor) topic(name string) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n, known := a.topics[name]
	if !known {
		n = uint32(len(a.names))
		a.names = append(a.names, name)
		a.topics[name] = n
	}
	return n
}

// part is as much of a digest as is kept to compare values and keys: enough to notice a change, not to name an event.
type part uint64

func partOf(d Digest) part { return part(binary.BigEndian.Uint64(d[:8])) }

const keyless = part(0)

func keyPart(key []byte) part {
	if key == nil {
		return keyless
	}
	return partOf(DigestOf(key)) | 1
}

// Row takes a row. One whose id came before is taken once.
func (a *Auditor) Row(r Row) error {
	id := DigestOf([]byte(r.ID))
	order := binary.BigEndian
	b := append(make([]byte, 0, 128), id[:]...)
	b = order.AppendUint64(b, uint64(partOf(r.Value)))
	b = order.AppendUint64(b, uint64(keyPart(r.Key)))
	b = order.AppendUint32(b, a.topic(r.Topic))
	b = append(b, byte(r.State))
	b = order.AppendUint32(b, a.topic(r.Place.Topic))
	b = order.AppendUint32(b, uint32(r.Place.Partition))
	b = order.AppendUint64(b, uint64(r.Place.Offset))
	b = order.AppendUint64(b, uint64(r.Order))
	b = order.AppendUint32(b, uint32(r.Made))
	b = order.AppendUint32(b, uint32(len(r.ID)))
	return a.rows.add(id, append(b, r.ID...))
}

// rowBytes and recordBytes are the sizes of the fixed parts of entries.
const (
	rowBytes    = 16 + 8 + 8 + 4 + 1 + 4 + 4 + 8 + 8 + 4 + 4
	recordBytes = 16 + 8 + 8 + 4 + 4 + 8 + 1 + 4
)

// Record takes a record of a topic; its Headers are not looked at.
func (a *Auditor) Record(r Record) error {
	id := DigestOf([]byte(r.ID))
	order := binary.BigEndian
	b := append(make([]byte, 0, recordBytes), id[:]...)
	b = order.AppendUint64(b, uint64(partOf(r.Value)))
	b = order.AppendUint64(b, uint64(keyPart(r.Key)))
	b = order.AppendUint32(b, a.topic(r.Topic))
	b = order.AppendUint32(b, uint32(r.Partition))
	b = order.AppendUint64(b, uint64(r.Offset))
	late := byte(0)
	if r.Late {
		late = 1
	}
	return a.records.add(id, order.AppendUint32(append(b, late), uint32(r.Made)))
}
