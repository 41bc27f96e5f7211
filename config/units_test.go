package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Seen to fail with hours left out.
func TestUnitsPrintAsWritten(t *testing.T) {
	for _, s := range []string{"0s", "1s", "90s", "168h", "50ms", "250µs", "3ns", "-5m", "20s"} {
		d, err := ParseDuration(s)
		if err != nil || d.String() != s {
			t.Errorf("duration %s: got %s, %v", s, d, err)
		}
	}
	for _, s := range []string{"0", "1MiB", "32MiB", "3KiB", "1023", "2GiB", "-4KiB"} {
		b, err := ParseByteSize(s)
		if err != nil || b.String() != s {
			t.Errorf("size %s: got %s, %v", s, b, err)
		}
	}
}

// Seen to fail with the units of a duration taken though they do not divide it, and with negative sizes refused.
func TestUnitsReadWhatTheyPrint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64().Draw(t, "duration"))
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Errorf("duration %d: printed %s, read back %d, %v", int64(d), d, int64(got), err)
		}
		b := ByteSize(rapid.Int64Range(-1<<62, 1<<62).Draw(t, "size"))
		if got, err := ParseByteSize(b.String()); err != nil || got != b {
			t.Errorf("size %d: printed %s, read back %d, %v", int64(b), b, int64(got), err)
		}
	})
}

// Seen to fail with 1024 bytes in a kB.
func TestByteSizeUnits(t *testing.T) {
	for s, want := range map[string]ByteSize{"1kB": 1000, "2MB": 2e6, "1GB": 1e9, "5B": 5, "8 KiB": 8192} {
		if got, err := ParseByteSize(s); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", s, int64(got), err, int64(want))
		}
	}
}

// Seen to fail with the wrong unit.
func TestStd(t *testing.T) {
	if got := Duration(time.Second).Std(); got != time.Second {
		t.Errorf("got %s, want 1s", got)
	}
}
