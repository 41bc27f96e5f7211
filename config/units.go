package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a span of time that prints the way people write it: in the largest unit that divides it, 168h and not
// 168h0m0s.
type Duration time.Duration

// Std is the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String is the duration in the largest unit of h, m, s, ms, µs, ns that divides it; zero is 0s.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if time.Duration(d)%unit.size == 0 {
			return strconv.FormatInt(int64(time.Duration(d)/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// ParseDuration reads what [time.ParseDuration] reads. A number without a unit is an error, except 0.
func ParseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("parse duration %q: want a number with a unit, such as 500ms, 10s, 5m, 168h", s)
	}
	return Duration(d), nil
}

// ByteSize is a number of bytes. It prints in the largest binary unit that divides it, such as 32MiB.
type ByteSize int64

// The binary units, and the decimal ones that are read but never printed.
var byteUnits = []struct {
	name string
	size int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

const binaryUnits = 3 // the first of byteUnits

// String is the size in the largest of GiB, MiB, KiB that divides it, else in bytes without a unit.
func (b ByteSize) String() string {
	if b != 0 {
		for _, unit := range byteUnits[:binaryUnits] {
			if int64(b)%unit.size == 0 {
				return strconv.FormatInt(int64(b)/unit.size, 10) + unit.name
			}
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// ParseByteSize reads a whole number with an optional unit: B, kB, MB, GB (powers of 1000), KiB, MiB, GiB (powers of
// 1024).
func ParseByteSize(s string) (ByteSize, error) {
	number, size := s, int64(1)
	for _, unit := range byteUnits {
		if rest, found := strings.CutSuffix(s, unit.name); found {
			number, size = strings.TrimRight(rest, " "), unit.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/size || n < -math.MaxInt64/size {
		return 0, fmt.Errorf("parse size %q: want a whole number of bytes or with a unit, such as 512KiB, 32MiB, 1GiB", s)
	}
	return ByteSize(n * size), nil
}
