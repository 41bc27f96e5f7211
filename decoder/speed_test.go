package decoder

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// typicalRow is an insert of seven columns with a payload of 310 bytes, and a decoder that waits for it.
func typicalRow(tb testing.TB) (*Decoder, []byte) {
	tb.Helper()
	d := New(plainConfig)
	if _, _, err := decodeAll(d, nil, beginMessage(200), relationMessage(ours, plainColumns...)); err != nil {
		tb.Fatal(err)
	}
	return d, insertMessage(ours, "01932f6e-7a5b-7c3d-8e9f-0a1b2c3d4e5f", "order", "customer-000123", "order.created",
		`{"note": "`+strings.Repeat("x", 298)+`"}`, "NULL", "2026-11-21 16:36:32.123456+00")
}

// Catches an allocation per row or per transaction: at 100,000 rows a second the collector would take a core. Seen
// to fail with ev.Extra allocated for each row.
func TestRowsAndTransactionsDoNotAllocate(t *testing.T) {
	c := plainConfig
	c.Columns.Extra = []string{"headers", "id"}
	d := New(c)
	names := append([]string(nil), plainColumns...)
	names[5] = "headers:bytea"
	var ev outbox.Event
	if _, _, err := decodeAll(d, &ev, beginMessage(1), relationMessage(ours, names...), relationMessage(strange, "a"),
		commitMessage(1, 2)); err != nil {
		t.Fatal(err)
	}
	row := insertMessage(ours, "1", "order", "o-1", "created", "{}", `\x616263`, "NULL")
	scratch := make([]byte, len(row)) // the row's bytea is decoded in place
	stranger, token := insertMessage(strange, "x"), logicalMessage(1)
	begin, commit := beginMessage(0), commitMessage(0, 0)
	lsn := byte(2)
	got := testing.AllocsPerRun(100, func() {
		begin[8], commit[9], commit[17] = lsn, lsn, lsn+1
		lsn++
		copy(scratch, row)
		for _, message := range [...][]byte{begin, scratch, stranger, token, commit} {
			if _, err := d.Decode(message, &ev); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("allocations per transaction: got %v, want 0", got)
	}
}

func BenchmarkInsert(b *testing.B) {
	d, row := typicalRow(b)
	var ev outbox.Event
	b.SetBytes(int64(len(row)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(row, &ev); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInsertBytea decodes 310 bytes from hex on top.
func BenchmarkInsertBytea(b *testing.B) {
	d := New(plainConfig)
	messages := bytea(`\x` + strings.Repeat("7b", 310))
	if _, _, err := decodeAll(d, nil, messages[:2]...); err != nil {
		b.Fatal(err)
	}
	var ev outbox.Event
	row, scratch := messages[2], make([]byte, len(messages[2]))
	b.ReportAllocs()
	for b.Loop() {
		copy(scratch, row)
		if _, err := d.Decode(scratch, &ev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkForeignInsert(b *testing.B) {
	d, _ := typicalRow(b)
	if _, err := d.Decode(relationMessage(strange, "a", "b"), nil); err != nil {
		b.Fatal(err)
	}
	row := insertMessage(strange, "1", "2")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(row, nil); err != nil {
			b.Fatal(err)
		}
	}
}
