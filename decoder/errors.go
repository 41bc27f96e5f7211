package decoder

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// MalformedError reports a message that the protocol does not allow at its place. Nothing after it can be trusted.
type MalformedError struct {
	What        string
	Offset      int        // of what is wrong, in the message
	Length      int        // of the message
	Hex         string     // at most 64 bytes of the message, from HexFrom on; they hold Offset
	HexFrom     int        // offset of the first byte in Hex
	Transaction outbox.LSN // commit LSN of the open transaction; 0 outside
}

// Error names the place and the bytes.
func (e *MalformedError) Error() string {
	where := "outside a transaction"
	if e.Transaction != 0 {
		where = fmt.Sprintf("in the transaction that committed at %v", e.Transaction)
	}
	return fmt.Sprintf("decode pgoutput message %s: %s, at byte %d of %d (bytes from %d: %s)", where, e.What, e.Offset,
		e.Length, e.HexFrom, e.Hex)
}

// SourceError reports that [Config].Sources failed.
type SourceError struct {
	Table string // as SQL writes it
	Cause error
}

func (e *SourceError) Error() string {
	return fmt.Sprintf("take table %s as an outbox: %v", e.Table, e.Cause)
}

func (e *SourceError) Unwrap() error { return e.Cause }

// ColumnError reports that the published outbox table lacks a column that the configuration names.
type ColumnError struct {
	Table  string   // as SQL writes it
	Column string   // the column that is missing
	Key    string   // the configuration key that names it; empty when a template does
	Have   []string // the columns that are published
}

// Error returns what is missing and how to fix it.
func (e *ColumnError) Error() string {
	column := quoteIdentifier(e.Column)
	key := e.Key
	if key == "" {
		key = "the message template that names it"
	}
	return fmt.Sprintf("table %s publishes no column %s; it has %s. "+
		"If the column was renamed: ALTER TABLE %s RENAME COLUMN <its new name> TO %s, or set %s to the new name. "+
		"If it is missing: ALTER TABLE %s ADD COLUMN %s <type>. "+
		"If the publication has a column list: ALTER PUBLICATION <publication> SET TABLE %s, without a list or with %s in it",
		e.Table, column, strings.Join(e.Have, ", "), e.Table, column, key, e.Table, column, e.Table, column)
}

// RowError reports a well-formed row that cannot be an event, such as one without an id.
type RowError struct {
	Table  string     // as SQL writes it
	Column string     // the column that spoils it
	Why    string     // what is wrong with the column, and what to do
	LSN    outbox.LSN // commit LSN of its transaction
	Index  uint32     // of the row in the transaction
}

// Error names the row by its position.
func (e *RowError) Error() string {
	return fmt.Sprintf("row %v/%d of table %s: column %s %s", e.LSN, e.Index, e.Table, quoteIdentifier(e.Column), e.Why)
}

// malformed makes the error for a fault at an offset of data.
func (d *Decoder) malformed(data []byte, offset int, what string) *MalformedError {
	const most, before = 64, 32
	from := max(0, min(offset-before, len(data)-most))
	return &MalformedError{
		What:        what,
		Offset:      offset,
		Length:      len(data),
		Hex:         hex.EncodeToString(data[from:min(len(data), from+most)]),
		HexFrom:     from,
		Transaction: d.commitLSN,
	}
}

func (d *Decoder) wrongLength(data []byte, want int) *MalformedError {
	if len(data) < want {
		return d.malformed(data, len(data), "message is cut")
	}
	return d.malformed(data, want, "bytes after the end of the message")
}

func (d *Decoder) unknownRelation(data []byte, oid uint32) *MalformedError {
	return d.malformed(data, 1, fmt.Sprintf("row of relation %d, which was not announced on this connection", oid))
}

// quoteIdentifier writes a name as SQL does, in quotes only when it needs them.
func quoteIdentifier(name string) string {
	plain := name != ""
	for i, c := range []byte(name) {
		plain = plain && (c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
