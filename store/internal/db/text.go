package db

import (
	"strings"
)

// maxErrorText bounds last_error, in bytes: a broker's message may be long, and the row is for people.
const maxErrorText = 4 << 10

// Clean makes a text that Postgres takes: valid UTF-8, no NUL, not endless.
func Clean(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return Valid(text)
}

// Valid makes a text that Postgres takes, however long.
func Valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

func Brief(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return Clean(text)
}
