package cli

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/plain"
)

// Plain is [plain.Text].
func Plain(text string) string { return plain.Text(text) }

// Text is a nullable text for people.
func Text(s *string) string {
	if s == nil {
		return "-"
	}
	return Plain(*s)
}

// Note is a note as the end of a sentence.
func Note(note string) string {
	if note == "" {
		return ""
	}
	return ": " + Plain(note)
}

// Ago is how long ago it was, short.
func Ago(at, now time.Time) string {
	d := now.Sub(at)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Bytes is a size for people, in powers of 1024.
func Bytes(n int64) string {
	size, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}

// Figure formats a known value for people; "-" stands for an unknown one.
func Figure[T any](known *T, form func(T) string) string {
	if known == nil {
		return "-"
	}
	return form(*known)
}

// Whole is the form of a whole number.
func Whole(n int64) string { return fmt.Sprint(n) }
