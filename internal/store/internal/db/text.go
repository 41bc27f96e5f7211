package db

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
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

// leastCompressed is how many times smaller than its text a stored value can be: pglz and lz4 compress to no less.
const leastCompressed = 256

// Larger is a condition: one of the columns has more bytes as text than the bound; 0: there is none. What is stored is
// looked at first, so that values are decompressed and printed for it only if they may be so large.
func Larger(most int64, columns ...string) string {
	var list []string
	for _, c := range columns {
		if c != "NULL" && most > 0 {
			list = append(list, fmt.Sprintf("pg_column_size(%[1]s) > %[2]d AND octet_length((%[1]s)::text) > %[3]d", c,
				most/leastCompressed, most))
		}
	}
	if len(list) == 0 {
		return "false"
	}
	return "coalesce(" + strings.Join(list, " OR ") + ", false)"
}

// Size is how many bytes the columns have as text.
func Size(columns ...string) string {
	sum := "0"
	for _, c := range columns {
		if c != "NULL" {
			sum += "+ coalesce(octet_length((" + c + ")::text), 0)"
		}
	}
	return sum
}

// ToBytes is a text as the bytes that the stream has of it.
func ToBytes(text string) string {
	return "convert_to(" + text + ", CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END)"
}
