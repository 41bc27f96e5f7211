package outbox

import (
	"bytes"
	"strconv"
	"time"
)

const secondsPerDay = 24 * 60 * 60

// ToUTC turns a timestamp without time zone, as Postgres prints it, from a time in the zone into one in UTC, in place.
// What ParseTimestamp refuses (infinity, BC), and what has a zone, stays as it is. It does not allocate.
//
// Where the zone's clocks skip an hour or repeat one, it takes the time as Postgres does (DetermineTimeZoneOffset in
// src/backend/utils/adt/datetime.c): a time that does not exist as before the change, one that comes twice as after it.
func ToUTC(b []byte, zone *time.Location) {
	local, err := ParseTimestamp(b)
	if err != nil || b[len(b)-1] == 'Z' || bytes.IndexByte(b, '+') >= 0 {
		return
	}
	_, offset := local.Add(-secondsPerDay * time.Second).In(zone).Zone()
	before := local.Add(-time.Duration(offset) * time.Second)
	t := before
	if _, change := local.Add(-secondsPerDay * time.Second).In(zone).ZoneBounds(); !change.IsZero() {
		_, offset = change.Zone()
		after := local.Add(-time.Duration(offset) * time.Second)
		switch {
		case before.Before(change) && after.Before(change):
		case before.After(change) && !after.Before(change):
			t = after
		case !before.After(after):
			t = after
		}
	}
	year := bytes.IndexByte(b, '-')
	var digits [8]byte
	text := strconv.AppendInt(digits[:0], int64(t.Year()), 10)
	if len(text) > year || t.Year() < 0 { // at the end of a year that is the last with so many digits
		return
	}
	for i := range year - len(text) {
		b[i] = '0'
	}
	copy(b[year-len(text):], text)
	for i, part := range [...]int{int(t.Month()), t.Day(), t.Hour(), t.Minute(), t.Second()} {
		at := year + 1 + 3*i
		b[at], b[at+1] = byte('0'+part/10), byte('0'+part%10)
	}
}
