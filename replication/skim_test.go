package replication

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// walData is a CopyData message with WAL data.
func walData(message string) []byte {
	body := append([]byte("w"), make([]byte, walHeader-1)...)
	body = append(body, message...)
	return append(binary.BigEndian.AppendUint32([]byte("d"), uint32(len(body)+4)), body...)
}

// rowOf is a row of a tuple: "" is NULL.
func rowOf(kind byte, values ...string) string {
	b := []byte{kind, byte(len(values) >> 8), byte(len(values))}
	for _, v := range values {
		if v == "" {
			b = append(b, 'n')
			continue
		}
		b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v))), v...)
	}
	return string(b)
}

// skipped is a row as rowOf has it, with the value of so many bytes left out.
func skipped(row, value string) string {
	n := string(binary.BigEndian.AppendUint32(nil, uint32(len(value))))
	return strings.Replace(row, "t"+n+value, "x"+n, 1)
}

// Breaks it catches: a large row that is kept whole, one whose other columns or neighbours are changed or lost, a read
// that ends in the middle of anything. Seen to fail with what is to be dropped looked at after what is to be kept next,
// and with the message taken whole.
func TestLargeValuesAreSkippedWhileTheyAreRead(t *testing.T) {
	const most = 100_000
	large, larger, medium := strings.Repeat("l", 300_000), strings.Repeat("L", 5<<20), strings.Repeat("m", 90_000)
	const insert, update, remove = "I\x00\x00\x00\x07", "U\x00\x00\x00\x07", "D\x00\x00\x00\x07"
	prefix := "M\x01\x00\x00\x00\x00\x00\x00\x00\x09others\x00"
	two := rowOf('N', medium, "id", medium, "", "z")
	full, after := strings.Repeat("l", most), insert+rowOf('N', "id", "", large, "after")
	cut := insert + rowOf('N', "id", large)[:200_000]
	for name, c := range map[string]struct{ message, want string }{
		"one":       {after, skipped(after, large)},
		"before id": {insert + rowOf('N', larger, "id"), skipped(insert+rowOf('N', larger, "id"), larger)},
		"the second": {insert + two,
			insert + "N\x00\x05" + rowOf('N', medium, "id")[3:] + "x\x00\x01\x5f\x90n" + rowOf('N', "z")[3:]},
		"update": {update + rowOf('O', large) + rowOf('N', "id", larger),
			update + skipped(rowOf('O', large), large) + skipped(rowOf('N', "id", larger), larger)},
		"delete":      {remove + rowOf('K', large, "k"), remove + skipped(rowOf('K', large, "k"), large)},
		"message":     {prefix + "\x00\x50\x00\x00" + larger, prefix + "\x00\x00\x00\x00"},
		"unknown":     {"Y" + large, "Y" + large},
		"cut":         {cut, cut},
		"just enough": {insert + rowOf('N', "id", full), insert + rowOf('N', "id", full)},
	} {
		stream := bytes.Join([][]byte{walData("Bbefore"), walData(c.message), walData("Cafter")}, nil)
		for kind, src := range map[string]io.Reader{
			"whole": bytes.NewReader(stream), "halves": iotest.HalfReader(bytes.NewReader(stream)),
			"bytes": iotest.OneByteReader(bytes.NewReader(stream)),
		} {
			if kind == "bytes" && len(stream) > 1<<20 {
				continue
			}
			f := frameReader{src: src, most: most}
			var got []string
			for len(got) < 3 {
				_, body, ok, err := f.next()
				if err != nil {
					t.Fatalf("%s, %s: %v", name, kind, err)
				}
				if ok {
					got = append(got, string(body[walHeader:]))
				} else if err := f.fill(); err != nil {
					t.Fatalf("%s, %s: %v after %d messages", name, kind, err, len(got))
				}
			}
			if got[0] != "Bbefore" || got[1] != c.want || got[2] != "Cafter" {
				t.Errorf("%s, %s: got %.40q (%d bytes) between %.20q and %.20q, want %.40q (%d bytes)", name, kind, got[1],
					len(got[1]), got[0], got[2], c.want, len(c.want))
			}
		}
	}
}
