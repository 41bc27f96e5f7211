package relay

// keepMost is the size up to which an event's bytes are copied out of the buffer in which the WAL was read. A larger one
// stays there: copying it would cost more, and it holds back little that is not its own.
const keepMost = 4 << 10

// keepStep is what a delivery's memory grows by, so that events of nearly the same size do not make it grow each time.
const keepStep = 64

// keep makes the delivery own its bytes, when they are few, and sets its cost to what it holds. False: they are many, and
// stay in the buffer in which the WAL was read.
//
// Without it one event that is stuck would hold back the whole read buffer, its neighbours in it long gone: a partition in
// trouble that gets every hundredth event would keep a hundred times the memory that the window counts. The copy goes
// into memory that the delivery keeps from event to event, so it allocates nothing and makes no garbage.
func (r *router) keep(d *delivery) bool {
	e, rec := &d.event, &d.record
	ownKey, ownValue := !sameBytes(rec.Key, e.AggregateID), !sameBytes(rec.Value, e.Payload)
	size := len(e.ID) + len(e.AggregateType) + len(e.AggregateID) + len(e.EventType) + len(e.Payload) + len(e.Headers) +
		len(e.CreatedAt) + len(rec.Headers.Block())
	for _, x := range e.Extra {
		size += len(x)
	}
	if ownKey {
		size += len(rec.Key)
	}
	if ownValue {
		size += len(rec.Value)
	}
	if size > keepMost {
		rec.Cost = cost(size + size/5) // of the buffer also what its neighbours held, which are gone
		return false
	}
	if cap(d.bytes) < size {
		d.bytes = make([]byte, 0, (size+keepStep-1)/keepStep*keepStep)
	}
	b := d.bytes[:0]
	for _, column := range [...]*[]byte{&e.ID, &e.AggregateType, &e.AggregateID, &e.EventType, &e.Payload, &e.Headers, &e.CreatedAt} {
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
	d.bytes = b
	rec.Cost = cost(cap(d.bytes))
	r.takeBack()
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

// sameBytes says whether two slices are one.
func sameBytes(a, b []byte) bool {
	if len(a) != len(b) || len(a) == 0 {
		return a == nil && b == nil
	}
	return &a[0] == &b[0]
}

// takeBack frees what the last route placed in the arena.
func (r *router) takeBack() {
	if len(r.mark) > 0 && len(r.arena) > 0 && &r.mark[0] == &r.arena[0] {
		r.arena = r.arena[:len(r.mark)]
		return
	}
	r.arena = r.arena[:0] // it is new, and only the last route has used it
}
