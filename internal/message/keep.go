package message

import (
	"github.com/cdc-relay/cdc-relay/internal/memory"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Keep moves the bytes of an event and its record, as Encode has just made it, out of the buffer in which the WAL was
// read and out of the arena into memory, and sets the record's cost to what that holds. It says whether it did: when
// they are very many, they stay where they are.
//
// Without it one event that is stuck would hold back the whole read buffer, its neighbours in it long gone: a partition
// in trouble that gets every hundredth event would keep a hundred times the memory that the window counts. And the read
// buffer is free for what comes next: the copy costs less than garbage of its size.
func (x *Encoder) Keep(e *outbox.Event, rec *sink.Record, m *memory.Memory) (kept bool) {
	ownKey, ownValue := !sameBytes(rec.Key, e.AggregateID), !sameBytes(rec.Value, e.Payload)
	size := len(e.ID) + len(e.AggregateType) + len(e.AggregateID) + len(e.EventType) + len(e.Payload) + len(e.Headers) +
		len(e.CreatedAt) + len(rec.Headers.Block())
	for _, column := range e.Extra {
		size += len(column)
	}
	if ownKey {
		size += len(rec.Key)
	}
	if ownValue {
		size += len(rec.Value)
	}
	b, kept := m.Room(size)
	if !kept {
		rec.Cost = Cost(size + size/5) // of the buffer also what its neighbours held, which are gone
		return false
	}
	for _, column := range [...]*[]byte{
		&e.ID, &e.AggregateType, &e.AggregateID, &e.EventType, &e.Payload, &e.Headers, &e.CreatedAt,
	} {
		b = move(b, column)
	}
	for i := range e.Extra {
		b = move(b, &e.Extra[i])
	}
	if ownKey {
		b = move(b, &rec.Key)
	} else {
		rec.Key = e.AggregateID
	}
	if ownValue {
		b = move(b, &rec.Value)
	} else {
		rec.Value = e.Payload
	}
	rec.Headers = rec.Headers.In(b)
	rec.Cost = Cost(m.Held())
	x.arena.takeBack()
	return true
}

// move appends what the slice refers to and lets it refer to the copy. NULL stays nil, empty stays empty.
func move(b []byte, slice *[]byte) []byte {
	if *slice == nil {
		return b
	}
	from := len(b)
	b = append(b, *slice...)
	*slice = b[from:len(b):len(b)]
	return b
}

// sameBytes reports whether two slices are one.
func sameBytes(a, b []byte) bool {
	if len(a) != len(b) || len(a) == 0 {
		return a == nil && b == nil
	}
	return &a[0] == &b[0]
}
