package message

const (
	arenaSize  = 32 << 10
	arenaSpare = 512 // less than this left: begin a new chunk rather than let appends move
	arenaLarge = 4 << 10
)

// arena is memory, in chunks, for what is built of one event after another. What was placed stays valid as long as
// someone refers to it; a chunk that no one refers to is garbage.
type arena struct {
	chunk []byte
	mark  []byte // chunk as it was before the current event
}

// begin notes where the current event's part begins.
func (a *arena) begin() { a.mark = a.chunk }

// place lets build append into the arena and cuts off what it made.
func (a *arena) place(build func([]byte) []byte) []byte { return a.placeUpTo(arenaSpare, build) }

// placeUpTo is place for about size bytes. What is large gets memory of its own: it would leave much of a chunk unused,
// and one event that stays long would hold all of it.
func (a *arena) placeUpTo(size int, build func([]byte) []byte) []byte {
	if size > arenaLarge {
		b := build(make([]byte, 0, size))
		return b[:len(b):len(b)]
	}
	b := build(a.reserve(size))
	a.claim(b)
	return b[:len(b):len(b)]
}

// reserve is free space, empty, for at least size bytes.
func (a *arena) reserve(size int) []byte {
	if cap(a.chunk)-len(a.chunk) < max(size, arenaSpare) {
		a.chunk = make([]byte, 0, arenaSize)
	}
	return a.chunk[len(a.chunk):]
}

// claim takes what was built in the reserved space out of it. What outgrew the chunk moved away by itself.
func (a *arena) claim(b []byte) {
	if len(b) <= cap(a.chunk)-len(a.chunk) {
		a.chunk = a.chunk[:len(a.chunk)+len(b)]
	}
}

// takeBack frees what the current event has placed.
func (a *arena) takeBack() {
	if len(a.mark) > 0 && len(a.chunk) > 0 && &a.mark[0] == &a.chunk[0] {
		a.chunk = a.chunk[:len(a.mark)]
		return
	}
	a.chunk = a.chunk[:0] // it is new, and only the current event has used it
}
