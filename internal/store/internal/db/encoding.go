package db

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// The encodings of databases that matter here, by Postgres's names. Every other one is treated as if it had ASCII only.
const (
	encodingUTF8  = "UTF8"
	encodingASCII = "SQL_ASCII"
	encodingLatin = "LATIN1"
)

// afterConnect learns the database's encoding. Values travel as UTF-8, into which the server converts them, but for
// SQL_ASCII: there they are bytes of any encoding, and a server that was asked for UTF-8 refuses those that are not.
func (s *DB) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	s.shared.encoding.Store(&encoding)
	if encoding != encodingASCII {
		return nil
	}
	if _, err := conn.Exec(ctx, "SET client_encoding = 'SQL_ASCII'"); err != nil {
		return fmt.Errorf("ask for text as it is stored: %w", err)
	}
	return nil
}

// LearnEncoding connects if no connection was made yet, so that Clean and Brief know what the database can hold.
func (s *DB) LearnEncoding(ctx context.Context) error {
	if s.shared.encoding.Load() != nil {
		return nil
	}
	conn, err := s.Pool.Acquire(ctx)
	if err == nil {
		conn.Release()
	}
	return err
}

// Clean makes a text that the database takes: valid UTF-8, without NUL, of characters that its encoding has, not
// endless.
func (s *DB) Clean(text string) string {
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return s.fitting(Valid(text))
}

// Brief is Clean for at most so many bytes.
func (s *DB) Brief(text string, most int) string { return s.Clean(text[:min(len(text), most)]) }

func (s *DB) fitting(text string) string {
	encoding := s.shared.encoding.Load()
	if encoding == nil {
		return text
	}
	return transliterate(text, *encoding)
}

// signs are the characters that the relay's own texts and those of brokers have most, in ASCII.
var signs = map[rune]string{
	'…': "...", '–': "-", '—': "-", '‘': "'", '’': "'", '“': `"`, '”': `"`, '„': `"`, '→': "->", '×': "x", '≤': "<=",
	'≥': ">=", '\u00a0': " ", '•': "*", '−': "-",
}

// transliterate writes what the encoding of the database lacks in ASCII: the usual signs by others, the rest as \u and
// hexadecimal digits, with a note.
func transliterate(text, encoding string) string {
	if encoding == encodingUTF8 || encoding == encodingASCII || isASCII(text) {
		return text
	}
	var b strings.Builder
	escaped := false
	for _, r := range text {
		sign, known := signs[r]
		switch {
		case r < utf8.RuneSelf, encoding == encodingLatin && r >= 0xa0 && r <= 0xff:
			b.WriteRune(r)
		case known:
			b.WriteString(sign)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
			escaped = true
		}
	}
	if escaped {
		b.WriteString(` [\u: a character that is not in ` + encoding + "]")
	}
	return b.String()
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
