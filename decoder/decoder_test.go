package decoder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// The OIDs of hand-made messages.
const (
	ours    = 100
	ourLeaf = 101
	strange = 900
)

// Hand-made messages, for what a sound server never sends.

func beginMessage(lsn outbox.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, 1)
	return binary.BigEndian.AppendUint32(b, 7)
}

func commitMessage(lsn, end outbox.LSN) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(lsn))
	b = binary.BigEndian.AppendUint64(b, uint64(end))
	return binary.BigEndian.AppendUint64(b, 1)
}

// relationMessage describes columns by name; a name that ends in ":bytea" is one.
func relationMessage(oid uint32, columns ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'R'}, oid)
	b = append(b, "public\x00outbox\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for _, c := range columns {
		name, kind, typeOID := "", "", uint32(25)
		if name, kind, _ = strings.Cut(c, ":"); kind == "bytea" {
			typeOID = byteaOID
		}
		b = append(append(b, 0), name+"\x00"...)
		b = binary.BigEndian.AppendUint32(b, typeOID)
		b = binary.BigEndian.AppendUint32(b, 0xFFFFFFFF)
	}
	return b
}

// insertMessage holds text values; "NULL" is NULL, "UNCHANGED" is an unchanged TOAST value.
func insertMessage(oid uint32, values ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'I'}, oid)
	b = binary.BigEndian.AppendUint16(append(b, 'N'), uint16(len(values)))
	for _, v := range values {
		switch v {
		case "NULL":
			b = append(b, 'n')
		case "UNCHANGED":
			b = append(b, 'u')
		default:
			b = binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(v)))
			b = append(b, v...)
		}
	}
	return b
}

func logicalMessage(flags byte) []byte {
	return append([]byte{'M', flags}, "\x00\x00\x00\x00\x00\x00\x00\x09prefix\x00\x00\x00\x00\x03abc"...)
}

var (
	plainConfig  = Config{Columns: outboxColumns, Tables: []uint32{ours, ourLeaf}}
	plainColumns = []string{"id", "aggregate_type", "aggregate_id", "event_type", "payload", "headers", "created_at"}
	plainValues  = []string{"1", "order", "o-1", "created", "{}", "NULL", "NULL"}
)

// decodeAll decodes until the first error and says which message brought it.
func decodeAll(d *Decoder, ev *outbox.Event, messages ...[]byte) (last Message, at int, err error) {
	for at = range messages {
		if last, err = d.Decode(messages[at], ev); err != nil {
			return last, at, err
		}
	}
	return last, at, nil
}

// Catches a fault that is let pass. In each row the last message is the faulty one, and all before it are sound.
func TestFaultyMessagesAreErrors(t *testing.T) {
	begin, commit := beginMessage(200), commitMessage(200, 250)
	relation, insert := relationMessage(ours, plainColumns...), insertMessage(ours, plainValues...)
	for name, test := range map[string]struct {
		messages [][]byte
		want     string
	}{
		"empty":                            {[][]byte{{}}, "empty message"},
		"begin inside a transaction":       {[][]byte{begin, beginMessage(300)}, "begin inside"},
		"begin without LSN":                {[][]byte{beginMessage(0)}, "without a final LSN"},
		"begin before the last end":        {[][]byte{begin, commit, beginMessage(249)}, "before the end"},
		"commit outside a transaction":     {[][]byte{commit}, "commit outside"},
		"second commit":                    {[][]byte{begin, commit, commit}, "commit outside"},
		"commit of another transaction":    {[][]byte{begin, commitMessage(201, 250)}, "began with 0/C8"},
		"commit that ends where it begins": {[][]byte{begin, commitMessage(200, 200)}, "not after it"},
		"commit with flags":                {[][]byte{begin, append([]byte{'C', 1}, commit[2:]...)}, "unknown flags 0x1"},
		"insert outside a transaction":     {[][]byte{relation, insert}, "insert outside"},
		"insert after commit":              {[][]byte{begin, relation, commit, insert}, "insert outside"},
		"insert of an unknown relation":    {[][]byte{begin, insert}, "not announced"},
		"insert of too few columns":        {[][]byte{begin, relation, insertMessage(ours, "1")}, "row of 1 columns"},
		"insert of too many columns": {[][]byte{begin, relation, insertMessage(ours, append(plainValues, "x")...)},
			"row of 8 columns"},
		"foreign insert of too few columns": {[][]byte{begin, relationMessage(strange, "a", "b"),
			insertMessage(strange, "1")}, "row of 1 columns"},
		"insert with unchanged value": {[][]byte{begin, relation,
			insertMessage(ours, append(plainValues[:6:6], "UNCHANGED")...)}, "unchanged TOAST"},
		"foreign insert with unchanged value": {[][]byte{begin, relationMessage(strange, "a"),
			insertMessage(strange, "UNCHANGED")}, "unchanged TOAST"},
		"insert with a binary value": {[][]byte{begin, relationMessage(strange, "a"),
			append(insertMessage(strange)[:6], "\x00\x01b\x00\x00\x00\x01x"...)}, `unknown kind 'b'`},
		"insert of an old row": {[][]byte{begin, relation, bytes.Replace(insert, []byte("N"), []byte("O"), 1)},
			"without a new row"},
		"value longer than the message": {[][]byte{begin, relationMessage(strange, "a"),
			append(insertMessage(strange)[:6], "\x00\x01t\xff\xff\xff\xffx"...)}, "cut"},
		"bytea without prefix":             {bytea("00"), `\x`},
		"bytea of an odd number of digits": {bytea(`\x123`), `\x`},
		"bytea in escape form":             {bytea(`abc\000`), `\x`},
		"bytea of no digits, high":         {bytea(`\x12g4`), `\x`},
		"bytea of no digits, low":          {bytea(`\x123:`), `\x`},
		"update of an unknown relation":    {[][]byte{begin, []byte("U\x00\x00\x00\x01N\x00\x00")}, "not announced"},
		"update outside a transaction": {[][]byte{relation, []byte("U\x00\x00\x00\x64N\x00\x00")},
			"outside a transaction"},
		"update without a new row": {[][]byte{begin, relation, []byte("U\x00\x00\x00\x64K\x00\x00K\x00\x00")},
			"without a new row"},
		"delete without an old row": {[][]byte{begin, relation, []byte("D\x00\x00\x00\x64N\x00\x00")},
			"without an old row"},
		"delete with unknown kind": {[][]byte{begin, relation, []byte("D\x00\x00\x00\x64K\x00\x01z")},
			`unknown kind 'z'`},
		"truncate outside a transaction": {[][]byte{[]byte("T\x00\x00\x00\x00\x00")}, "outside a transaction"},
		"truncate of too few relations":  {[][]byte{begin, []byte("T\x00\x00\x00\x02\x00\x00\x00\x00\x01")}, "cut"},
		"origin outside a transaction": {[][]byte{[]byte("O\x00\x00\x00\x00\x00\x00\x00\x01x\x00")},
			"outside a transaction"},
		"transactional message outside": {[][]byte{logicalMessage(1)}, "outside a transaction"},
		"message with unknown flags":    {[][]byte{begin, logicalMessage(2)}, "unknown flags 0x2"},
		"relation without names":        {[][]byte{[]byte("R\x00\x00\x00\x01public")}, "string without an end"},
	} {
		t.Run(name, func(t *testing.T) {
			_, at, err := decodeAll(New(plainConfig), &outbox.Event{}, test.messages...)
			malformed, ok := errors.AsType[*MalformedError](err)
			if !ok || at != len(test.messages)-1 || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %T %v at message %d, want a *MalformedError with %q at message %d", err, err, at, test.want,
					len(test.messages)-1)
			}
			if size := len(test.messages[at]); malformed.Length != size || malformed.Offset < 0 || malformed.Offset > size ||
				len(malformed.Hex) > 128 {
				t.Errorf("place: got %+v for a message of %d bytes", malformed, size)
			}
		})
	}
}

// bytea is a transaction whose row has the text as its payload, which is a bytea.
func bytea(text string) [][]byte {
	names, values := slices.Clone(plainColumns), slices.Clone(plainValues)
	names[4], values[4] = "payload:bytea", text
	return [][]byte{beginMessage(200), relationMessage(ours, names...), insertMessage(ours, values...)}
}

// Catches a decoder that takes messages which belong to options that the relay does not ask for: streaming ('S', 'E',
// 'c', 'A'), two-phase commit ('b', 'P', 'K', 'r', 'p'), or to a protocol of the future. Skipping one may skip events.
func TestMessageTypesOutsideOfProtocol1AreErrors(t *testing.T) {
	for c := range 256 {
		if strings.IndexByte("BCORYIUDTM", byte(c)) >= 0 {
			continue
		}
		_, _, err := decodeAll(New(plainConfig), &outbox.Event{}, beginMessage(200), []byte{byte(c), 0, 0, 0, 0})
		if _, ok := errors.AsType[*MalformedError](err); !ok || !strings.Contains(err.Error(), "protocol version 1") {
			t.Errorf("type %q: got %v, want a *MalformedError", byte(c), err)
		}
	}
}

// Catches a decoder that goes on after an error: what follows an unreadable message must not look like a transaction
// that may be confirmed. Seen to fail with the error forgotten.
func TestNothingIsDecodedAfterAnErrorUntilReset(t *testing.T) {
	d := New(plainConfig)
	_, _, first := decodeAll(d, &outbox.Event{}, beginMessage(200), []byte("?"))
	if _, err := d.Decode(commitMessage(200, 250), nil); err == nil || err != first {
		t.Errorf("after the error: got %v, want the same error %v", err, first)
	}
	d.Reset()
	if m, err := d.Decode(beginMessage(100), nil); err != nil || m.Kind != Begin {
		t.Errorf("after Reset: got %v, %v, want a Begin", m.Kind, err)
	}
}

// Catches what outlives its connection: relations, because the table may have changed between connections, and
// the last end, because a slot goes back when Postgres crashes. Seen to fail with the last end kept, and with the
// relations kept.
func TestResetForgetsTheConnection(t *testing.T) {
	d := New(plainConfig)
	insert := insertMessage(ours, plainValues...)
	if _, _, err := decodeAll(d, &outbox.Event{}, beginMessage(200), relationMessage(ours, plainColumns...), insert,
		commitMessage(200, 250)); err != nil {
		t.Fatal(err)
	}
	d.Reset()
	if _, at, err := decodeAll(d, &outbox.Event{}, beginMessage(100), insert); at != 1 || err == nil {
		t.Errorf("after Reset: got %v at message %d, want an error of the insert only", err, at)
	}
}

// Catches rows that are mapped by an old Relation message, or by that of another relation: a wrong column would be
// published as the payload.
func TestRowsAreMappedByTheLastRelationMessageOfTheirOID(t *testing.T) {
	d := New(plainConfig)
	var ev outbox.Event
	want := func(at, id, payload string, index uint32) {
		t.Helper()
		if string(ev.ID) != id || string(ev.Payload) != payload || ev.Position.Index != index {
			t.Errorf("%s: got id %q, payload %q, index %d, want %q, %q, %d", at, ev.ID, ev.Payload, ev.Position.Index, id,
				payload, index)
		}
	}
	decode := func(messages ...[]byte) {
		t.Helper()
		if _, at, err := decodeAll(d, &ev, messages...); err != nil {
			t.Fatalf("message %d: %v", at, err)
		}
	}
	turned := []string{"payload", "created_at", "headers", "event_type", "aggregate_id", "aggregate_type", "id"}

	decode(beginMessage(200), relationMessage(ours, plainColumns...), insertMessage(ours, "1", "", "", "", "a", "", ""))
	want("first shape", "1", "a", 0)
	decode(relationMessage(ourLeaf, turned...), insertMessage(ourLeaf, "b", "", "", "", "", "", "2"))
	want("another relation", "2", "b", 1)
	decode(insertMessage(ours, "3", "", "", "", "c", "", ""))
	want("the first relation again", "3", "c", 2)
	decode(relationMessage(ours, append([]string{"new"}, turned...)...),
		insertMessage(ours, "x", "d", "", "", "", "", "", "4"))
	want("changed within the transaction", "4", "d", 3)
	decode(relationMessage(strange, "id"), insertMessage(strange, "99"))
	want("a stranger's row leaves the event alone", "4", "d", 3)
	decode(commitMessage(200, 250), beginMessage(300), insertMessage(ours, "x", "e", "", "", "", "", "", "5"))
	want("the next transaction", "5", "e", 0)
	if ev.Position.Order != 300 || ev.Position.Table {
		t.Errorf("position: got %+v, want a stream position of the commit LSN 0/12C", ev.Position)
	}
}

// Catches NULL and the empty string taken for each other, values of the row before left in the event, and an Extra that
// is not in the configured order or is allocated for each row.
func TestEventIsFilledAnew(t *testing.T) {
	c := plainConfig
	c.Columns.Headers, c.Columns.CreatedAt = "", ""
	c.Columns.AggregateID = "id" // one column may serve twice
	c.Columns.Extra = []string{"b", "a", "id"}
	extra := make([][]byte, 0, 8)
	ev := outbox.Event{Headers: []byte("old"), CreatedAt: []byte("old"), Payload: []byte("old"), Extra: extra,
		Position: outbox.Position{Epoch: 5, Table: true}}
	_, _, err := decodeAll(New(c), &ev, beginMessage(200),
		relationMessage(ours, "a:bytea", "b", "id:bytea", "aggregate_type", "event_type", "payload"),
		insertMessage(ours, `\x`, "NULL", `\x4a4F`, "", "NULL", "NULL"))
	if err != nil {
		t.Fatal(err)
	}
	want := outbox.Event{
		ID: []byte("JO"), AggregateType: []byte{}, AggregateID: []byte("JO"), Extra: [][]byte{nil, {}, []byte("JO")},
		Position: outbox.Position{Epoch: 5, Order: 200},
	}
	if !reflect.DeepEqual(ev, want) {
		t.Errorf("event: got %+v, want %+v", ev, want)
	}
	if &ev.Extra[:1][0] != &extra[:1][0] {
		t.Error("Extra: its capacity was not used again")
	}
}

// Catches an aggregate asked for of a table that has none, and that of the row before left in the event. Seen to fail
// with the columns always looked for, and with what the event had left in it.
func TestTablesMayHaveNoAggregate(t *testing.T) {
	c := plainConfig
	c.Columns.AggregateType, c.Columns.AggregateID, c.Columns.Headers, c.Columns.CreatedAt = "", "", "", ""
	ev := outbox.Event{AggregateType: []byte("old"), AggregateID: []byte("old")}
	if _, _, err := decodeAll(New(c), &ev, beginMessage(200), relationMessage(ours, "id", "event_type", "payload"),
		insertMessage(ours, "1", "made", "{}")); err != nil {
		t.Fatal(err)
	}
	want := outbox.Event{ID: []byte("1"), EventType: []byte("made"), Payload: []byte("{}"),
		Position: outbox.Position{Order: 200}}
	if !reflect.DeepEqual(ev, want) {
		t.Errorf("event: got %+v, want %+v", ev, want)
	}
}

// Catches values whose capacity reaches into the next column: an append to one would change the other. Seen to fail
// with values whose capacity reaches into the next one.
func TestValuesEndWhereTheyEnd(t *testing.T) {
	var ev outbox.Event
	if _, _, err := decodeAll(New(plainConfig), &ev,
		append(bytea(`\x31`)[:2], insertMessage(ours, "1", "order", "o-1", "created", `\x3132`, "h", "c"))...); err != nil {
		t.Fatal(err)
	}
	m, err := New(plainConfig).Decode(logicalMessage(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][]byte{"ID": ev.ID, "AggregateID": ev.AggregateID, "Payload": ev.Payload,
		"Prefix": m.Prefix} {
		if len(v) != cap(v) {
			t.Errorf("%s: got capacity %d for %d bytes", name, cap(v), len(v))
		}
	}
}

// Catches a halt whose text does not tell a person how to end it.
func TestColumnErrorSaysHowToRepair(t *testing.T) {
	_, _, err := decodeAll(New(plainConfig), nil,
		relationMessage(ours, "id", "Aggregate Type", "aggregate_id", "event_type"))
	e, ok := errors.AsType[*ColumnError](err)
	if !ok {
		t.Fatalf("got %v, want a *ColumnError", err)
	}
	want := ColumnError{Table: "public.outbox", Column: "aggregate_type", Key: "outbox.columns.aggregate_type",
		Have: []string{"id", "Aggregate Type", "aggregate_id", "event_type"}}
	if !reflect.DeepEqual(*e, want) {
		t.Errorf("got %+v, want %+v", *e, want)
	}
	for _, part := range []string{
		"ALTER TABLE public.outbox RENAME COLUMN <its new name> TO aggregate_type", "outbox.columns.aggregate_type",
		"ALTER TABLE public.outbox ADD COLUMN aggregate_type <type>", "ALTER PUBLICATION",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("text: got %q, want %q in it", err, part)
		}
	}
	c := plainConfig
	c.Columns.Extra = []string{"Tenant"}
	_, _, err = decodeAll(New(c), nil, relationMessage(ours, plainColumns...))
	if e, ok := errors.AsType[*ColumnError](err); !ok || e.Column != "Tenant" ||
		!strings.Contains(err.Error(), `ADD COLUMN "Tenant"`) || !strings.Contains(err.Error(), "template") {
		t.Errorf("extra column: got %v, want a *ColumnError about \"Tenant\" of a template", err)
	}
}

// Catches a row without identity that passes, and an error that does not say which row it is. Seen to fail with a NULL
// id let through.
func TestRowWithoutIDIsAnError(t *testing.T) {
	values := append([]string{"NULL"}, plainValues[1:]...)
	_, _, err := decodeAll(New(plainConfig), &outbox.Event{}, beginMessage(200), relationMessage(ours, plainColumns...),
		insertMessage(ours, plainValues...), insertMessage(ours, values...))
	if e, ok := errors.AsType[*RowError](err); !ok || e.Column != "id" || e.LSN != 200 || e.Index != 1 {
		t.Errorf("got %+v, want a *RowError of column id at 0/C8 index 1", err)
	}
}

// Catches an error that shows more of a row than 64 bytes, or not the place that is wrong.
func TestMalformedErrorShowsThePlace(t *testing.T) {
	messages := bytea(`\x` + strings.Repeat("00", 500) + "zz" + strings.Repeat("00", 500))
	_, _, err := decodeAll(New(plainConfig), &outbox.Event{}, messages...)
	e, ok := errors.AsType[*MalformedError](err)
	if !ok {
		t.Fatalf("got %v, want a *MalformedError", err)
	}
	if want := bytes.Index(messages[2], []byte("zz")); e.Offset != want || e.HexFrom > want || e.HexFrom+64 <= want ||
		len(e.Hex) != 128 || e.Transaction != 200 {
		t.Errorf("got offset %d, hex from %d: %s, transaction %v, want offset %d within the hex, transaction 0/C8", e.Offset,
			e.HexFrom, e.Hex, e.Transaction, want)
	}
}

// Breaks it catches: a value that was not kept taken for a fault, or its size forgotten, or left over for the next row.
// Seen to fail with the kind unknown, and with the count not begun at 0.
func TestSkippedValuesAreNullAndCounted(t *testing.T) {
	d := New(Config{Columns: outbox.Columns{ID: "id", EventType: "type", Payload: "payload"}, Tables: []uint32{ours}})
	var ev outbox.Event
	decode := func(data []byte) {
		t.Helper()
		if _, err := d.Decode(data, &ev); err != nil {
			t.Fatal(err)
		}
	}
	decode(beginMessage(10))
	decode(relationMessage(ours, "payload:bytea", "id", "type"))
	whole := insertMessage(ours, "SKIPPED", "e1", "made")
	large := bytes.Replace(whole, []byte("t\x00\x00\x00\x07SKIPPED"), []byte("x\x05\x00\x00\x00"), 1)
	decode(large)
	if want := int64(5<<24 + len(large)); ev.Payload != nil || ev.Oversize != want || string(ev.ID) != "e1" {
		t.Errorf("got payload %q, size %d, id %q, want none, %d, e1", ev.Payload, ev.Oversize, ev.ID, want)
	}
	decode(insertMessage(ours, "\\x41", "e2", "made"))
	if string(ev.Payload) != "A" || ev.Oversize != 0 {
		t.Errorf("the next: got payload %q, size %d, want A and 0", ev.Payload, ev.Oversize)
	}
}
