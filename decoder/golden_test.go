package decoder

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// outboxColumns is the mapping of every golden file; a file adds its own extra columns.
var outboxColumns = outbox.Columns{
	ID: "id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
	Payload: "payload", Headers: "headers", CreatedAt: "created_at",
}

// golden is one file of testdata: what a real server sent, and what the decoder makes of it. Run
//
//	go test ./decoder -run TestGolden -update
//
// to capture all of them again, on Postgres 15 if it is to be had, and read the difference before it is committed.
type golden struct {
	name   string
	about  []string // comment lines
	config Config
	wire   [][]byte
	want   []string // describe of each message; an error ends the file
}

// TestGolden catches any change in what the decoder makes of messages that a real server sent.
func TestGolden(t *testing.T) {
	if *update {
		captureAll(t)
	}
	for _, g := range readGoldens(t) {
		t.Run(g.name, func(t *testing.T) {
			for i, got := range describeAll(g) {
				if got != g.want[i] {
					t.Errorf("message %d: got\n%s\nwant\n%s", i, got, g.want[i])
				}
			}
		})
	}
}

// describeAll decodes the messages of a file in order and describes each.
func describeAll(g golden) []string {
	d := New(g.config)
	var ev outbox.Event
	described := make([]string, len(g.wire))
	for i, wire := range g.wire {
		m, err := d.Decode(bytes.Clone(wire), &ev)
		described[i] = describe(m, &ev, err)
	}
	return described
}

// describe writes all that a message says in one line.
func describe(m Message, ev *outbox.Event, err error) string {
	if err != nil {
		return fmt.Sprintf("%T %v", err, err)
	}
	at := func() string { return time.UnixMicro(m.Time).UTC().Format("2006-01-02T15:04:05.000000Z") }
	switch m.Kind {
	case Begin:
		return fmt.Sprintf("Begin lsn=%v time=%s xid=%d", m.LSN, at(), m.XID)
	case Commit:
		return fmt.Sprintf("Commit lsn=%v end=%v time=%s", m.LSN, m.End, at())
	case RelationMessage:
		return "Relation " + describeRelation(m.Relation)
	case Insert:
		return fmt.Sprintf("Insert oid=%d %s", m.OID, describeEvent(ev))
	case LogicalMessage:
		return fmt.Sprintf("LogicalMessage lsn=%v transactional=%v prefix=%s content=%s", m.LSN, m.Transactional,
			value(m.Prefix), value(m.Content))
	}
	s := fmt.Sprintf("%v %c", m.Kind, m.Wire)
	if m.OID != 0 {
		s += fmt.Sprintf(" oid=%d", m.OID)
	}
	if m.Foreign {
		s += " foreign"
	}
	if m.Relation != nil {
		s += " " + describeRelation(m.Relation)
	}
	return s
}

func describeRelation(r *Relation) string {
	var s strings.Builder
	fmt.Fprintf(&s, "oid=%d %s.%s", r.OID, r.Schema, r.Name)
	for _, c := range r.Columns {
		fmt.Fprintf(&s, " %s:%d", c.Name, c.Type)
		if c.Key {
			s.WriteString("(key)")
		}
	}
	return s.String()
}

func describeEvent(ev *outbox.Event) string {
	s := fmt.Sprintf("position=%v id=%s aggregate_type=%s aggregate_id=%s event_type=%s payload=%s headers=%s "+
		"created_at=%s", ev.Position,
		value(ev.ID), value(ev.AggregateType), value(ev.AggregateID), value(ev.EventType), value(ev.Payload),
		value(ev.Headers), value(ev.CreatedAt))
	for i, extra := range ev.Extra {
		s += fmt.Sprintf(" extra%d=%s", i, value(extra))
	}
	return s
}

// value tells NULL from the empty string, and shortens what is long and says how long.
func value(b []byte) string {
	if b == nil {
		return "NULL"
	}
	if len(b) > 200 {
		return fmt.Sprintf("%q...(%d bytes)", b[:32], len(b))
	}
	return strconv.Quote(string(b))
}

// readGoldens reads all files of testdata.
func readGoldens(t testing.TB) []golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(paths) == 0 {
		t.Fatalf("golden files: found %d (error %v), want some", len(paths), err)
	}
	var goldens []golden
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		g, err := parseGolden(strings.TrimSuffix(filepath.Base(path), ".golden"), string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		goldens = append(goldens, g)
	}
	return goldens
}

func parseGolden(name, text string) (golden, error) {
	g := golden{name: name, config: Config{Columns: outboxColumns}}
	for i, line := range strings.Split(text, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "tables":
			for _, field := range strings.Fields(rest) {
				oid, err := strconv.ParseUint(field, 10, 32)
				if err != nil {
					return g, fmt.Errorf("line %d: %w", i+1, err)
				}
				g.config.Tables = append(g.config.Tables, uint32(oid))
			}
		case "extra":
			g.config.Columns.Extra = strings.Fields(rest)
		case "wire":
			wire, err := parseRuns(rest)
			if err != nil {
				return g, fmt.Errorf("line %d: %w", i+1, err)
			}
			g.wire = append(g.wire, wire)
		case "want":
			g.want = append(g.want, rest)
		default:
			return g, fmt.Errorf("line %d: unknown word %q", i+1, word)
		}
	}
	if len(g.wire) != len(g.want) || len(g.wire) == 0 {
		return g, fmt.Errorf("%d wire lines and %d want lines", len(g.wire), len(g.want))
	}
	return g, nil
}

func (g golden) String() string {
	var s strings.Builder
	for _, line := range g.about {
		s.WriteString(strings.TrimRight("# "+line, " ") + "\n")
	}
	s.WriteString("tables")
	for _, oid := range g.config.Tables {
		fmt.Fprintf(&s, " %d", oid)
	}
	if len(g.config.Columns.Extra) > 0 {
		s.WriteString("\nextra " + strings.Join(g.config.Columns.Extra, " "))
	}
	s.WriteString("\n")
	for i, wire := range g.wire {
		fmt.Fprintf(&s, "\nwire %s\nwant %s\n", formatRuns(wire), g.want[i])
	}
	return s.String()
}

// formatRuns writes hex, and a long run of one byte as {78*100000}: a large value then takes one short line.
func formatRuns(b []byte) string {
	const long = 64
	var s strings.Builder
	for len(b) > 0 {
		run := 1
		for run < len(b) && b[run] == b[0] {
			run++
		}
		if run < long {
			s.WriteString(hex.EncodeToString(b[:run]))
		} else {
			fmt.Fprintf(&s, "{%02x*%d}", b[0], run)
		}
		b = b[run:]
	}
	return s.String()
}

func parseRuns(s string) ([]byte, error) {
	var b []byte
	for s != "" {
		plain, rest, hasRun := strings.Cut(s, "{")
		decoded, err := hex.DecodeString(plain)
		if err != nil {
			return nil, fmt.Errorf("read hex: %w", err)
		}
		b = append(b, decoded...)
		if !hasRun {
			break
		}
		var char byte
		var n int
		run, after, _ := strings.Cut(rest, "}")
		if _, err := fmt.Sscanf(run, "%x*%d", &char, &n); err != nil {
			return nil, fmt.Errorf("read run %q: %w", run, err)
		}
		b = append(b, bytes.Repeat([]byte{char}, n)...)
		s = after
	}
	return b, nil
}

// Catches golden files that lack one of the shapes that this package must know: a capture that lost its content would
// otherwise pass as well. Seen to fail with the file of logical messages taken away.
func TestGoldensHoldEveryKindOfMessage(t *testing.T) {
	var seen []string
	for _, g := range readGoldens(t) {
		for _, want := range g.want {
			word, rest, _ := strings.Cut(want, " ")
			if word == "Ignored" {
				word += " " + rest[:1]
			}
			seen = append(seen, word)
		}
	}
	for _, want := range []string{"Begin", "Commit", "Relation", "Insert", "LogicalMessage", "*decoder.ColumnError",
		"*decoder.RowError",
		"Ignored I", "Ignored R", "Ignored U", "Ignored D", "Ignored T", "Ignored Y", "Ignored O"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no golden file holds a message of kind %q", want)
		}
	}
}
