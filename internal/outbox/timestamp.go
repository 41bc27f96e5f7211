package outbox

import (
	"fmt"
	"time"
)

// ParseTimestamp reads a timestamp or timestamptz as Postgres prints it under DateStyle ISO and TimeZone UTC:
// "2026-11-21 16:36:32.123456+00", the fraction (1 to 6 digits) and the offset optional, the offset zero. Other forms
// ("infinity", BC, other zones) are an error. It does not allocate on success.
func ParseTimestamp(b []byte) (time.Time, error) { //nolint:gocyclo // one flat pass, once per event
	year, rest, ok := digits(b, 4, 6)
	if !ok || len(rest) < 15 || rest[0] != '-' || rest[3] != '-' || rest[6] != ' ' || rest[9] != ':' || rest[12] != ':' {
		return badTimestamp(b)
	}
	month, ok1 := two(rest[1:])
	day, ok2 := two(rest[4:])
	hour, ok3 := two(rest[7:])
	minute, ok4 := two(rest[10:])
	second, ok5 := two(rest[13:])
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 24 ||
		minute > 59 || second > 60 {
		return badTimestamp(b)
	}
	nanos, rest, ok := nanoseconds(rest[15:])
	if !ok {
		return badTimestamp(b)
	}
	switch string(rest) {
	case "", "+00", "+00:00", "Z":
	default:
		return badTimestamp(b)
	}
	return time.Date(year, time.Month(month), day, hour, minute, second, nanos, time.UTC), nil
}

func badTimestamp(b []byte) (time.Time, error) {
	const most = 64
	return time.Time{}, fmt.Errorf("parse timestamp %.64q: want YYYY-MM-DD HH:MM:SS[.ffffff][+00]", b[:min(len(b), most)])
}

// nanoseconds reads an optional point and 1 to 6 digits.
func nanoseconds(b []byte) (value int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '.' {
		return 0, b, true
	}
	value, rest, ok = digits(b[1:], 1, 6)
	for n := len(b) - 1 - len(rest); n < 9; n++ {
		value *= 10
	}
	return value, rest, ok
}

// digits reads between least and most leading decimal digits.
func digits(b []byte, least, most int) (value int, rest []byte, ok bool) {
	n := 0
	for n < len(b) && n < most && b[n] >= '0' && b[n] <= '9' {
		value = value*10 + int(b[n]-'0')
		n++
	}
	return value, b[n:], n >= least
}

func two(b []byte) (int, bool) {
	if b[0] < '0' || b[0] > '9' || b[1] < '0' || b[1] > '9' {
		return 0, false
	}
	return int(b[0]-'0')*10 + int(b[1]-'0'), true
}
