// Package plain makes texts of rows, brokers and people safe to show on a terminal, and to paste into a shell. It
// formats nothing.
package plain

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text keeps a text on one line, and keeps it from moving the cursor, changing colours or reordering what is read:
// control characters (C0, DEL and C1), format characters such as bidirectional overrides, line and paragraph
// separators, and bytes that are not UTF-8 become U+FFFD.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if Unsafe(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// Unsafe reports whether Text replaces the character.
func Unsafe(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

// Word returns the text as one word of a shell's command.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
