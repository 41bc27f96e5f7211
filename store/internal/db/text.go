package db

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/outbox"
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

// Text is an expression on a row o of the outbox: a column as text, or what is composed of columns, NULL where all of
// those are NULL or empty; NULL without both.
func Text(column string, parts []outbox.Part) string {
	if column != "" {
		return "o." + Quote(column) + "::text"
	}
	if len(parts) == 0 {
		return "NULL::text"
	}
	var whole, columns []string
	for _, p := range parts {
		if p.Column == "" {
			whole = append(whole, Literal(p.Literal))
			continue
		}
		whole = append(whole, "o."+Quote(p.Column)+"::text") // concat takes NULL for no text
		columns = append(columns, "o."+Quote(p.Column)+"::text")
	}
	return "CASE WHEN concat(" + strings.Join(columns, ", ") + ") <> '' THEN concat(" + strings.Join(whole, ", ") + ") END"
}
