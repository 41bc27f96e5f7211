package spool

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

const (
	table   = 100 // OIDs
	former  = 200
	strange = 300
)

var columns = outbox.Columns{ID: "id", EventType: "type", Payload: "payload"}

func begin(lsn outbox.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(lsn))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(lsn)), 7)
}

func commit(lsn outbox.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(lsn))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(lsn+1)), 1)
}

// relation has its columns in the order given.
func relation(oid uint32, names []string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'R'}, oid), "public\x00outbox\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(names)))
	for _, name := range names {
		b = append(append(append(b, 0), name...), 0, 0, 0, 0, 25, 0xff, 0xff, 0xff, 0xff)
	}
	return b
}

func insert(oid uint32, values ...string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'I'}, oid), 'N')
	b = binary.BigEndian.AppendUint16(b, uint16(len(values)))
	for _, v := range values {
		b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
	}
	return b
}

func token(text string) []byte {
	b := append([]byte{'M', 1, 0, 0, 0, 0, 0, 0, 0, 9}, "ours\x00"...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// stream makes transactions, and notes what must come out of the spool: each event and token behind the position of its
// transaction.
type stream struct {
	d       *rand.Rand
	names   []string // columns, in their present order
	news    bool     // the next transaction announces them
	lsn     outbox.LSN
	events  int
	wanted  []string
	stored  outbox.LSN // transactions before it are stored already
	largest int        // bytes of a payload
}

func (s *stream) row() []byte {
	s.events++
	id, payload := fmt.Sprint(s.events), strings.Repeat("p", s.d.IntN(s.largest))
	if s.lsn >= s.stored {
		s.wanted = append(s.wanted, fmt.Sprintf("%v %s %d", s.lsn, id, len(payload)))
	}
	values := map[string]string{"id": id, "type": "made", "payload": payload, "more": "m"}
	var row []string
	for _, name := range s.names {
		row = append(row, values[name])
	}
	return insert(table, row...)
}

// transaction has rows of ours, of another table's, both or neither; the table may change in it.
func (s *stream) transaction() (messages [][]byte) {
	s.lsn += 10
	messages = append(messages, begin(s.lsn))
	for range s.d.IntN(6) {
		switch what := s.d.IntN(10); {
		case what == 0:
			messages = append(messages, relation(strange, []string{"a"}), insert(strange, "b"))
		case what == 1:
			text := fmt.Sprint("token ", s.lsn)
			messages = append(messages, token(text))
			if s.lsn >= s.stored {
				s.wanted = append(s.wanted, fmt.Sprintf("%v %s", s.lsn, text))
			}
		case what == 2 || s.news:
			s.d.Shuffle(len(s.names), func(i, j int) { s.names[i], s.names[j] = s.names[j], s.names[i] })
			s.news = false
			messages = append(messages, relation(table, s.names))
		default:
			messages = append(messages, s.row())
		}
	}
	return append(messages, commit(s.lsn))
}

// decoded is the result of decoding the messages.
func decoded(t *testing.T, d *decoder.Decoder, messages [][]byte, at *outbox.LSN) (got []string) {
	t.Helper()
	for _, data := range messages {
		var e outbox.Event
		m, err := d.Decode(data, &e)
		if err != nil {
			t.Fatalf("message %q: %v", data[:1], err)
		}
		switch m.Kind {
		case decoder.Begin:
			*at = m.LSN
		case decoder.Insert:
			got = append(got, fmt.Sprintf("%v %s %d", *at, e.ID, len(e.Payload)))
		case decoder.LogicalMessage:
			got = append(got, fmt.Sprintf("%v %s", *at, m.Content))
		}
	}
	return got
}

// Random streams, cut into rows at random times, and read from any row on that may be the first. Breaks it catches: a
// message left out, twice or at another place; a row that needs one before it; the end of a transaction that is not all
// there; a transaction stored twice; events counted wrong; what another table brings.
func TestRowsHoldTheStream(t *testing.T) {
	for seed := range uint64(90) {
		s := &stream{d: rand.New(rand.NewPCG(seed, 1)), names: []string{"id", "type", "payload", "more"}, news: true,
			largest: 1 + []int{50, 3000, rowBytes / 2}[seed%3]}
		s.stored = outbox.LSN(10 * s.d.IntN(8))
		p := New(Options{Decoder: decoder.New(decoder.Config{Columns: columns, Tables: []uint32{table}}), Prefix: "ours",
			Stored: func(outbox.LSN) {}})
		p.skip = s.stored
		var rows []filling
		for range 20 {
			for _, m := range s.transaction() {
				if err := p.pack(m); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, p.packer.full()...)
				if s.d.IntN(20) == 0 { // the time is over
					rows = append(rows, p.packer.take()...)
				}
			}
		}
		rows = append(rows, p.packer.take()...)
		readRows(t, seed, p.codec, rows, s.wanted)
	}
}

// readRows reads them from each on that may be the first.
func readRows(t *testing.T, seed uint64, c *codec, rows []filling, wanted []string) {
	t.Helper()
	done := 0 // of wanted, before the row
	for first := range rows {
		if first == 0 || rows[first-1].ends != 0 {
			d := decoder.New(decoder.Config{Columns: columns, Tables: []uint32{table}})
			var got []string
			var at outbox.LSN
			for _, r := range rows[first:] {
				messages, err := c.unpack(c.compress(r.data))
				if err != nil {
					t.Fatal(err)
				}
				some := decoded(t, d, messages, &at)
				if r.ends != 0 && at+1 != r.ends {
					t.Fatalf("seed %d: a row ends at %v, and its last transaction at %v", seed, r.ends, at+1)
				}
				got = append(got, some...)
			}
			if !slices.Equal(got, wanted[done:]) {
				t.Fatalf("seed %d, from row %d on: got %d, want %d of %d: %.200v", seed, first, len(got), len(wanted)-done,
					len(wanted), got)
			}
		}
		tokens := strings.Count(string(rows[first].data), "ours\x00")
		done += rows[first].events + tokens
	}
	if done != len(wanted) {
		t.Fatalf("seed %d: rows count %d events and tokens, want %d", seed, done, len(wanted))
	}
}

// Breaks it catches: rows of a table that was adopted taken for another's, with its columns; a row that is damaged and
// read.
func TestRowsOfAFormerTableAreTheOutboxs(t *testing.T) {
	messages := [][]byte{relation(former, []string{"type", "id", "payload"}), begin(10), insert(former, "t", "7", "p"),
		commit(10)}
	if err := rename(messages, []uint32{50, table}, table); err != nil {
		t.Fatal(err)
	}
	var at outbox.LSN
	d := decoder.New(decoder.Config{Columns: columns, Tables: []uint32{table}})
	if got := decoded(t, d, messages, &at); !slices.Equal(got, []string{"0/A 7 1"}) {
		t.Errorf("got %q, want event 7", got)
	}
	for _, damaged := range [][]byte{{}, {'I', 0, 0}} {
		if rename([][]byte{damaged}, []uint32{table}, table) == nil {
			t.Errorf("message %q: got no error", damaged)
		}
	}
	c := newCodec()
	whole := c.compress([]byte{0, 0, 0, 2, 'B', 0})
	for cut := range whole {
		if got, err := c.unpack(whole[:cut]); err == nil && len(got) > 0 {
			t.Errorf("the first %d of %d bytes: got %d messages, want an error", cut, len(whole), len(got))
		}
	}
	if _, err := c.unpack(c.compress([]byte{0, 0, 0, 9, 'B'})); err == nil {
		t.Error("a message shorter than its length: got no error")
	}
}
