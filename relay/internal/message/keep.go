package message

import (
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// keepMost is the size up to which an event's bytes are copied out of the buffer in which the WAL was read. A larger
// one stays there: copying it would cost more, and it holds back little that is not its own.
const keepMost = 4 << 10

// keepStep is what that memory grows by, so that events of nearly the same size do not make it grow each time.
const keepStep = 64

// Keep moves the bytes of an event and its record, as Encode has just made it, out of the buffer in which the WAL was
// read and out of the arena into memory, and sets the record's cost to what that holds. It returns the memory, for the
// next event, and whether it did: when they are many, they stay where they are.
//
// Without it one event that is stuck would hold back the whole read buffer, its neighbours in it long gone: a partition
// in trouble that gets every hundredth event would keep a hundred times the memory that the window counts. The copy
// goes into memory that the caller keeps from event to event, so it allocates nothing and makes no garbage.
func (x *Encoder) Keep(e *outbox.Event, rec *sink.Record, memory []byte) (_ []byte, kept bool) {
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
	if size > keepMost {
		rec.Cost = Cost(size + size/5) // of the buffer also what its neighbours held, which are gone
		return memory, false
	}
	if cap(memory) < size {
		memory = make([]byte, 0, (size+keepStep-1)/keepStep*keepStep)
	}
	b := memory[:0]
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
	rec.Cost = Cost(cap(b))
	x.arena.takeBack()
	return b, true
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
