package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// LSN is a byte position in the write-ahead log of one Postgres timeline. Zero means "none": Postgres never hands out
// 0/0 as the position of a record.
type LSN uint64

// String is the form that Postgres prints: two hexadecimal halves, "16/B374D848".
func (l LSN) String() string { return string(l.AppendText(make([]byte, 0, 17))) }

// AppendText appends the form of [LSN.String] to b, at most 17 bytes.
func (l LSN) AppendText(b []byte) []byte {
	b = appendUpperHex(b, uint32(l>>32))
	b = append(b, '/')
	return appendUpperHex(b, uint32(l))
}

func appendUpperHex(b []byte, v uint32) []byte {
	const digits = "0123456789ABCDEF"
	shift := 28
	for shift > 0 && v>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&0xF])
	}
	return b
}

// ParseLSN reads the form that Postgres prints.
func ParseLSN(s string) (LSN, error) {
	high, low, found := strings.Cut(s, "/")
	if found {
		h, errHigh := strconv.ParseUint(high, 16, 32)
		l, errLow := strconv.ParseUint(low, 16, 32)
		if errHigh == nil && errLow == nil {
			return LSN(h<<32 | l), nil
		}
	}
	return 0, fmt.Errorf("parse LSN %q: want two hexadecimal numbers of up to 8 digits with a slash between, such as "+
		"16/B374D848", s)
}
