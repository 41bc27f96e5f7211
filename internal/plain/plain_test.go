package plain

import (
	"testing"
	"unicode/utf8"
)

// Breaks it catches: a text of a row that moves the cursor, forges a line, paints, or turns the order of a line; one
// that is altered without need. Seen to fail with each of the conditions of Unsafe left out: U+FFFD, controls, and each
// of Cf, Zl and Zp.
func TestTextCannotLeaveItsLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ümläut, 日本, 💥\u00a0": "plain, ümläut, 日本, 💥\u00a0",
		"a\nFAIL b\r\tc":             "a\ufffdFAIL b\ufffd\ufffdc",
		"\x1b[2J\x1b]0;x\x07\x7f":    "\ufffd[2J\ufffd]0;x\ufffd\ufffd",
		"\u009b31m\u0085":            "\ufffd31m\ufffd",
		"\u202ecba\u2066\ufeff":      "\ufffdcba\ufffd\ufffd",
		"a\u2028b\u2029c":            "a\ufffdb\ufffdc",
		"\xff\x9b31m":                "\ufffd\ufffd31m",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if !Unsafe(utf8.RuneError) {
		t.Error("U+FFFD, which a byte that is not UTF-8 is read as: got safe")
	}
}

func FuzzTextIsSafe(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := Text(text)
		if !utf8.ValidString(got) {
			t.Errorf("%q: got %q, which is not UTF-8", text, got)
		}
		for _, r := range got {
			if r != utf8.RuneError && Unsafe(r) {
				t.Errorf("%q: got %q with %U", text, got, r)
			}
		}
	})
}
