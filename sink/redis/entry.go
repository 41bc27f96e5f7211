package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Fields of ours.
const (
	keyField       = "key"
	payloadField   = "payload"
	tombstoneField = "x-outbox-tombstone"
	renamed        = "header:" // before the name of a header that is a field of ours, or begins so
)

// fieldSize bounds the overhead of a field on the wire.
const fieldSize = 2 * len("$1000000\r\n\r\n")

// appendFields appends the record's names and values, one after the other.
func appendFields(list []any, r *sink.Record) []any {
	if r.Key != nil {
		list = append(list, keyField, r.Key)
	}
	for name, value := range r.Headers.All() {
		list = append(list, fieldName(name), value)
	}
	if r.Value == nil {
		return append(list, tombstoneField, "true")
	}
	return append(list, payloadField, r.Value)
}

// fieldName is the header's field: different for each header, and none of ours.
func fieldName(header string) string {
	switch {
	case header == keyField, header == payloadField, header == tombstoneField, strings.HasPrefix(header, renamed):
		return renamed + header
	}
	return header
}

// sizeOfEntry bounds the record's size in a request.
func sizeOfEntry(r *sink.Record) int {
	size := len(r.Key) + len(r.Value) + len(keyField) + len(tombstoneField) + 3*fieldSize
	for name, value := range r.Headers.All() {
		size += len(renamed) + len(name) + len(value) + fieldSize
	}
	return size
}

// digestOf identifies an entry by what does not differ between two relays that send the same event.
func digestOf(fields []any) *conditional.Digest {
	digest := conditional.NewDigest()
	for i := 0; i+1 < len(fields); i += 2 {
		digest.AddHeader(text(fields[i]), []byte(text(fields[i+1])))
	}
	return digest
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

// seqBits is how many bits of an offset are the second part of an id.
const seqBits = 22

// offsetOf is the id as an offset.
func offsetOf(id string) (int64, error) {
	first, second, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(first, 10, 64)
	if err != nil || ms < 0 || ms >= 1<<(63-seqBits) {
		return 0, fmt.Errorf("the id %q has no time that an offset can hold", id)
	}
	seq, err := strconv.ParseInt(second, 10, 64)
	if err != nil || seq < 0 || seq >= 1<<seqBits {
		return 0, fmt.Errorf("the id %q has a second part that an offset cannot hold (%d bits)", id, seqBits)
	}
	return ms<<seqBits | seq, nil
}

// idOf is the offset as an id.
func idOf(offset int64) string {
	return strconv.FormatInt(offset>>seqBits, 10) + "-" + strconv.FormatInt(offset&(1<<seqBits-1), 10)
}
