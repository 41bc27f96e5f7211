package message

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The encoder produces the examples in the documentation from one row. Break it catches: a message that changed and
// whose documentation did not. Seen to fail with the row's headers left out.
func TestDocumentedMessagesAreTheEncodersOwn(t *testing.T) {
	const path = "../../docs/messages.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	have := string(page)
	for _, name := range formats {
		begin, end := "<!-- "+name+": written by go test ./internal/message -rewrite -->\n", "<!-- end of "+name+" -->"
		before, rest, found := strings.Cut(have, begin)
		example, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no lines %q and %q", path, strings.TrimSpace(begin), end)
		}
		want := "```\n" + documented(t, name) + "```\n"
		if *rewrite {
			example, have = want, before+begin+want+end+after
		}
		if diff := cmp.Diff(want, example); diff != "" {
			t.Errorf("%s in %s (-want +got), go test ./internal/message -run Documented -rewrite writes it:\n%s", name,
				path, diff)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// documented is the example's row as a message.
func documented(t *testing.T, name string) string {
	r := newFormatted(t, name, "jsonb", nil)
	r.Begin("7461338104538361886/1/1", 3)
	r.At(time.Date(2026, 11, 21, 16, 36, 32, 130_000_000, time.UTC))
	d := &carried{event: outbox.Event{
		ID: text("019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01"), AggregateType: text("order"), AggregateID: text("order-17"),
		EventType: text("OrderPlaced"),
		Payload:   text(`{"total": "99.90", "currency": "EUR"}`),
		Headers:   text(`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`),
		CreatedAt: text("2026-11-21 16:36:32.123456+00"), Position: outbox.Position{Epoch: 3, Order: 0x16B374D848},
	}}
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	text := readable(&d.record)
	if name != "envelope" {
		return text
	}
	head, value, _ := strings.Cut(text, "\nvalue ")
	if plain, _, _ := strings.Cut(documented(t, "plain"), "\nvalue "); head != plain {
		t.Errorf("the page says that an envelope has the headers of plain, got %s, want %s", head, plain)
	}
	return "value " + value
}

func readable(r *sink.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic      %s\nkey        %s\ntimestamp  %s\n", r.Topic, r.Key,
		time.UnixMilli(r.Timestamp).UTC().Format(time.RFC3339Nano))
	width := 0
	for name := range r.Headers.All() {
		width = max(width, utf8.RuneCountInString(name))
	}
	for name, value := range r.Headers.All() {
		fmt.Fprintf(&b, "header     %-*s  %s\n", width, name, value)
	}
	fmt.Fprintf(&b, "value      %s\n", r.Value)
	return b.String()
}

// A relay that is restarted with another format must find its own records in the topics. Break it catches: an id read
// from a header that the format does not have.
func TestIDHeaderIsTheOneThatRecordsCarry(t *testing.T) {
	for _, name := range formats {
		r, d := newFormatted(t, name, "jsonb", nil), &carried{event: anEvent()}
		if reason := r.route(d); reason != nil {
			t.Fatal(reason)
		}
		c := config.Default().Message
		c.Format = name
		if id, _ := d.record.Headers.Get(c.HeaderNames()[0]); string(id) != "e1" || r.names[fieldID] != c.HeaderNames()[0] {
			t.Errorf("%s: header %s: got %q, want e1", name, c.HeaderNames()[0], id)
		}
	}
}
