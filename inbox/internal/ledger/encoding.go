package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// escaped begins a text with characters that the database's encoding does not have. They are written as in Go.
const escaped = `\u:`

// asker is a pool or a transaction.
type asker interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Fit returns the text as the database can hold it: as it is, or escaped.
func (l *Ledger) Fit(ctx context.Context, text string) (string, error) {
	if l.unicode {
		return text, nil
	}
	return fit(ctx, l.pool, text)
}

// fit asks the server, since that knows which characters an encoding has, and which one the connection speaks.
func fit(ctx context.Context, on asker, text string) (string, error) {
	if isASCII(text) {
		return text, nil
	}
	var length int
	err := on.QueryRow(ctx, "SELECT octet_length($1::text)", text).Scan(&length)
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return text, nil
	case errors.As(err, &pg) && (pg.Code == "22P05" || pg.Code == "22021"): // untranslatable; not in the repertoire
		quoted := strconv.QuoteToASCII(text)
		return escaped + quoted[1:len(quoted)-1], nil
	}
	return "", fmt.Errorf("look whether the database can hold a text: %w", err)
}

// original reverses Fit.
func original(text string) string {
	rest, is := strings.CutPrefix(text, escaped)
	if !is {
		return text
	}
	if plain, err := strconv.Unquote(`"` + rest + `"`); err == nil {
		return plain
	}
	return text
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// fitting are the entries with texts that the database can hold.
func (l *Ledger) fitting(ctx context.Context, entries ...Entry) ([]Entry, error) {
	if l.unicode {
		return entries, nil
	}
	fitting := make([]Entry, len(entries))
	for i, e := range entries {
		names := make([]string, len(e.HeaderNames))
		var err [3]error
		e.Type, err[0] = l.Fit(ctx, e.Type)
		e.Error, err[1] = l.Fit(ctx, e.Error)
		for n, name := range e.HeaderNames {
			if names[n], err[2] = l.Fit(ctx, name); err[2] != nil {
				break
			}
		}
		if failed := errors.Join(err[:]...); failed != nil {
			return nil, failed
		}
		e.HeaderNames = names
		fitting[i] = e
	}
	return fitting, nil
}
