package message

import (
	"bytes"
	"unicode/utf8"
)

// mostPlain bounds the pairs of an object that plainObject reads, and with them what is kept for the next one.
const mostPlain = 64

// plainObject appends the alternating names and values of a JSON object of strings, without copying; nearly every
// headers column holds one. False: encoding/json must read it, and report what is wrong with it, if anything
// is: it is no such object, has more than mostPlain pairs, or strings that do not stand for themselves.
func plainObject(pairs [][]byte, text []byte) ([][]byte, bool) {
	rest, is := after('{', text)
	if !is {
		return pairs, false
	}
	if rest, is := after('}', rest); is {
		return pairs, len(skipBlanks(rest)) == 0
	}
	for range mostPlain {
		var name, value []byte
		if name, rest, is = plainString(rest); !is {
			return pairs, false
		}
		if rest, is = after(':', rest); !is {
			return pairs, false
		}
		if value, rest, is = plainString(rest); !is {
			return pairs, false
		}
		pairs = append(pairs, name, value)
		if next, more := after(',', rest); more {
			rest = next
			continue
		}
		rest, is = after('}', rest)
		return pairs, is && len(skipBlanks(rest)) == 0
	}
	return pairs, false
}

// plainString cuts a JSON string off text, without its quotes. False: text begins with something else, or the string
// has an escape, a control character, or bytes that are no UTF-8, which encoding/json replaces.
func plainString(text []byte) (s, rest []byte, is bool) {
	text, is = after('"', text)
	if !is {
		return nil, nil, false
	}
	end := bytes.IndexByte(text, '"')
	if end < 0 {
		return nil, nil, false
	}
	s = text[:end:end]
	ascii := true
	for _, c := range s {
		if c < ' ' || c == '\\' {
			return nil, nil, false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return s, text[end+1:], ascii || utf8.Valid(s)
}

// after returns the text behind the byte, which JSON white space may precede.
func after(b byte, text []byte) (rest []byte, is bool) {
	text = skipBlanks(text)
	if len(text) == 0 || text[0] != b {
		return nil, false
	}
	return text[1:], true
}

func skipBlanks(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\n' || text[0] == '\r' || text[0] == '\t') {
		text = text[1:]
	}
	return text
}
