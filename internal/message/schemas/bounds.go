package schemas

import (
	"bytes"
	"cmp"
	"fmt"
	"time"
)

// What one payload may cost. A validator works with exact numbers, recursion and a tree of values: a few bytes of a
// payload can ask for gigabytes of digits ("1e999999999"), and a stack overflow or a lack of memory ends the process,
// which no recover prevents. So the payload is bounded before it is parsed.
const (
	// depthMost bounds nested objects and lists.
	depthMost = 1000
	// digitsMost bounds the digits of a number, exponentMost its exponent, up and down.
	digitsMost, exponentMost = 1000, 1000
	// valuesMost bounds the values of one payload: each takes up to 300 bytes, with the reason why it does not fit.
	valuesMost = 250_000
	// timeMost bounds the time for one payload. A schema whose branches refer to itself can be exponential in the depth
	// of a payload.
	timeMost = 5 * time.Second
	// stepsPerLook is the number of steps between two looks at the clock.
	stepsPerLook = 64
)

// Shape measures a payload's cost for a reader, as far as can be told without parsing it.
type Shape struct {
	Depth    int // of nested objects and lists
	values   int
	digits   int // of the longest number
	exponent int // the largest, without its sign
}

// Measure reads the shape of a JSON text. It is linear and allocates nothing; of what is not JSON it measures
// something, and a parser refuses it afterwards.
func Measure(payload []byte) (s Shape) {
	depth := 0
	s.values = 1
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case c == '"':
			i = endOfString(payload, i+1)
		case c == '{' || c == '[':
			depth++
			s.values++
			s.Depth = max(s.Depth, depth)
		case c == '}' || c == ']':
			depth--
		case c == ',':
			s.values++
		case c == '-' || c >= '0' && c <= '9':
			i = s.number(payload, i) - 1
		}
	}
	return s
}

// endOfString is the index of the quote that ends a string, or the length of the text.
func endOfString(text []byte, at int) int {
	for at < len(text) {
		n := bytes.IndexByte(text[at:], '"')
		if n < 0 {
			return len(text)
		}
		at += n
		escapes := 0
		for k := at - 1; k >= 0 && text[k] == '\\'; k-- {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
		at++
	}
	return at
}

// number measures the number that begins at an index, and returns the index behind it.
func (s *Shape) number(text []byte, at int) int {
	digits, exponent, inExponent := 0, 0, false
	for ; at < len(text); at++ {
		switch c := text[at]; {
		case c >= '0' && c <= '9' && inExponent:
			exponent = min(exponent*10+int(c-'0'), exponentMost+1)
		case c >= '0' && c <= '9':
			digits++
		case c == 'e' || c == 'E':
			inExponent = true
		case c != '-' && c != '+' && c != '.':
			s.digits, s.exponent = max(s.digits, digits), max(s.exponent, exponent)
			return at
		}
	}
	s.digits, s.exponent = max(s.digits, digits), max(s.exponent, exponent)
	return at
}

// Oversize says in which way there is more than a reader should parse; empty: there is not.
func (s Shape) Oversize() string {
	switch {
	case s.Depth > depthMost:
		return fmt.Sprintf("it is nested %d levels deep, and at most %d are read", s.Depth, depthMost)
	case s.values > valuesMost:
		return fmt.Sprintf("it has %d values, and at most %d are read", s.values, valuesMost)
	}
	return ""
}

// excess is Oversize for a reader that computes with exact numbers.
func (s Shape) excess() string {
	switch {
	case s.exponent > exponentMost:
		return fmt.Sprintf("it has a number with an exponent beyond %d, the largest that is validated", exponentMost)
	case s.digits > digitsMost:
		return fmt.Sprintf("it has a number of %d digits, and at most %d are validated", s.digits, digitsMost)
	}
	return s.Oversize()
}

// Effort is the time spent on one payload. One goroutine uses it at a time.
type Effort struct {
	most  time.Duration // 0: timeMost
	steps int
	until time.Time
}

// Begin starts the time of the next payload.
func (e *Effort) Begin() { e.steps, e.until = 0, time.Now().Add(cmp.Or(e.most, timeMost)) }

// Step counts a step of the work. It panics with a *TooLong once the payload's time is over: the work is deep in
// recursion by then, in part of a library that knows no context.
func (e *Effort) Step() {
	if e.steps++; e.steps%stepsPerLook == 0 && time.Now().After(e.until) {
		panic(&TooLong{cmp.Or(e.most, timeMost)})
	}
}

// TooLong reports that the work on one payload was given up.
type TooLong struct{ After time.Duration }

// Error names the bound.
func (t *TooLong) Error() string {
	return fmt.Sprintf("processing the payload was aborted after %v", t.After)
}
