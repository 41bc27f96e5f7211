package connect

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A batch of records of format v2 (Kafka documentation, "Record Batch"): its length stands at lengthAt and counts what
// is behind lengthEnd.
const (
	lengthAt   = 8
	lengthEnd  = 12
	magicAt    = 16
	codecAt    = 22 // the low byte of the attributes
	codecMask  = 7
	countAt    = 57
	recordsAt  = 61
	magicV2    = 2
	mostOfThem = 1 << 21 // records of a batch: it is made of a message.max.bytes
)

// countsFit reports whether the batches have no more records, and the records no more headers, than there are bytes
// for; nil if so. What is compressed is bounded by the count of its records alone.
func countsFit(b []byte) error {
	for len(b) >= recordsAt {
		size := int64(binary.BigEndian.Uint32(b[lengthAt:])) + lengthEnd
		if b[magicAt] != magicV2 || size < recordsAt || size > int64(len(b)) {
			return nil // an older format, or one that is cut off at the end, as is usual
		}
		count := int32(binary.BigEndian.Uint32(b[countAt:]))
		if count < 0 || count > mostOfThem {
			return fmt.Errorf("a batch names %d records", count)
		}
		if b[codecAt]&codecMask == 0 {
			if int64(count) > size {
				return fmt.Errorf("a batch of %d bytes names %d records", size, count)
			}
			if err := headersFit(b[recordsAt:size], int(count)); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

var errRecord = errors.New("a record names a length or count that it has no bytes for")

// headersFit looks at the lengths in records that are not compressed.
func headersFit(b []byte, count int) error {
	for range count {
		size, n := binary.Varint(b)
		if n <= 0 || size < 0 || size > int64(len(b)-n) {
			return errRecord
		}
		if !recordFits(b[n : n+int(size)]) {
			return errRecord
		}
		b = b[n+int(size):]
	}
	return nil
}

// recordFits looks at one record: attributes, two deltas, key, value and headers.
func recordFits(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	b = b[1:]
	number := func() (v int64, ok bool) {
		v, n := binary.Varint(b)
		if n <= 0 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	bytes := func() bool {
		v, ok := number()
		if !ok || v < -1 || v > int64(len(b)) {
			return false
		}
		b = b[max(v, 0):]
		return true
	}
	if _, ok := number(); !ok {
		return false
	}
	if _, ok := number(); !ok || !bytes() || !bytes() {
		return false
	}
	headers, ok := number()
	if !ok || headers < 0 || headers > int64(len(b)) {
		return false
	}
	for range headers {
		name := bytes()
		if value := bytes(); !name || !value {
			return false
		}
	}
	return true
}
