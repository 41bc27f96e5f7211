package db

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// maxErrorText bounds last_error, in bytes: a broker's message may be long, and the row is for people.
const maxErrorText = 4 << 10

// Valid makes a text that Postgres takes, however long.
func Valid(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}

// Text is Compose on a row o of the outbox.
func Text(column string, parts []outbox.Part) string {
	return Compose(column, parts, func(name string) string { return "o." + Quote(name) + "::text" })
}

// Compose is an expression: a column as text, by what gives one, or what is composed of columns, NULL where all of
// those are NULL or empty; NULL without both.
func Compose(column string, parts []outbox.Part, of func(column string) string) string {
	if column != "" {
		return of(column)
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
		whole, columns = append(whole, of(p.Column)), append(columns, of(p.Column)) // concat takes NULL for no text
	}
	return "CASE WHEN concat(" + strings.Join(columns, ", ") + ") <> '' THEN concat(" + strings.Join(whole, ", ") + ") END"
}
