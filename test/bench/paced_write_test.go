package bench

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// write commits the events of the pace into a table like the outbox, and notes when each COMMIT has returned.
func (r *run) write(p pace, table string, x *trace) {
	r.t.Helper()
	var writers sync.WaitGroup
	failures := make(chan error, p.writers)
	conns := make([]*pgx.Conn, p.writers)
	for w := range conns {
		conns[w] = r.pg.Connect(r.t)
	}
	start := time.Now()
	for w, conn := range conns {
		writers.Go(func() { failures <- r.writeShare(r.t.Context(), conn, p, w, start, table, x) })
	}
	writers.Wait()
	close(failures)
	for err := range failures {
		if err != nil {
			r.t.Fatalf("write at a steady pace: %v", err)
		}
	}
	if n := slices.Index(x.done, 0); n >= 0 {
		r.t.Fatalf("write at a steady pace: nobody has written event %d", n)
	}
}

// A row of a pace, or as many as its arrays are long.
const (
	pacedInto = ` (id, aggregate_type, aggregate_id, event_type, payload) SELECT id, '` + aggregateType +
		`', key, 'OrderPlaced',
		jsonb_build_object('order', n, 'customer', 'customer-4711', 'amount_cents', 12345, 'currency', 'EUR',
		 'note', $4::text) FROM `
	pacedRow  = pacedInto + `(VALUES ($1::uuid, $2::text, $3::int)) AS u (id, key, n)`
	pacedRows = pacedInto + `unnest($1::uuid[], $2::text[], $3::int[]) AS u (id, key, n)`
)

// writeShare commits every transaction whose number is w modulo the number of writers. Each writer has its own
// aggregates, so that the order of an aggregate's commits is the order of seq.
func (r *run) writeShare(ctx context.Context, conn *pgx.Conn, p pace, w int, start time.Time, table string,
	x *trace) error {
	filler := incompressible(r.payload - payloadFrame)
	written := 0
	keyOf := func() string {
		written++
		return fmt.Sprintf("order-%d-%d", w, written%max(r.keys/p.writers, 1))
	}
	for k := w; ; k += p.writers {
		from, to := p.transaction(k)
		if from >= p.total {
			return nil
		}
		to = min(to, p.total)
		p.wait(start, from)
		var err error
		if to-from == 1 {
			_, err = conn.Exec(ctx, `INSERT INTO `+table+pacedRow, idOf(p.from+from), keyOf(), from, filler)
		} else {
			var ids [][16]byte
			var keys []string
			var numbers []int
			for n := from; n < to; n++ {
				ids, keys, numbers = append(ids, idOf(p.from+n)), append(keys, keyOf()), append(numbers, n)
			}
			_, err = conn.Exec(ctx, `INSERT INTO `+table+pacedRows, ids, keys, numbers, filler)
		}
		if err != nil {
			return fmt.Errorf("insert: %w", err)
		}
		done := time.Since(x.base)
		for n := from; n < to; n++ {
			x.done[n] = done
		}
	}
}

// incompressible is text that Postgres does not make smaller, always the same.
func incompressible(size int) string {
	text := make([]byte, max(size, 0))
	letters := rand.New(rand.NewPCG(1, 2))
	for n := range text {
		text[n] = "0123456789abcdef"[letters.IntN(16)]
	}
	return string(text)
}

// idOf is the uuid of an event of a pace: a version 7 whose last 48 bits are its number.
func idOf(n int) [16]byte {
	id := [16]byte{0x01, 0x93, 0, 0, 0, 0, 0x70, 0, 0x80}
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(n))
	copy(id[10:], number[2:])
	return id
}

// numberOf is the reverse for the text form.
func numberOf(id []byte, p pace) (int, error) {
	const last = 12 // hexadecimal digits after the last hyphen
	var number [8]byte
	if len(id) != 36 {
		return 0, fmt.Errorf("the id %q is no uuid", id)
	}
	if _, err := hex.Decode(number[2:], id[len(id)-last:]); err != nil {
		return 0, fmt.Errorf("the id %q is no uuid: %w", id, err)
	}
	n := binary.BigEndian.Uint64(number[:]) - uint64(p.from) // too small wraps around to too large
	if n >= uint64(p.total) {
		return 0, fmt.Errorf("the id %q is of no event", id)
	}
	return int(n), nil
}
