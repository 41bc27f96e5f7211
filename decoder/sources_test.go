package decoder

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Each outbox of a stream counts its rows by itself: the positions of one must not depend on whether the decoder takes
// the rows of another, which may have been created in between. Breaks it catches: a row that gets another outbox's
// source, an outbox that is ignored, a stranger that is taken, and an index that counts the rows of all.
func TestRowsOfSeveralOutboxesHaveTheirSourceAndTheirOwnIndex(t *testing.T) {
	const first, second, stranger = 201, 202, 203
	known := map[uint32]int32{first: 11, second: 22}
	row := func(table uint32, id string) []byte {
		return insertMessage(table, append([]string{id}, plainValues[1:]...)...)
	}
	messages := [][]byte{beginMessage(200)}
	for _, table := range []uint32{first, second, stranger} {
		messages = append(messages, relationMessage(table, plainColumns...))
	}
	messages = append(messages, row(first, "1"), row(second, "1"), row(stranger, "1"), row(second, "2"), row(first, "2"),
		commitMessage(200, 250), beginMessage(300), row(second, "3"), row(first, "3"), commitMessage(300, 350))
	events := func(d *Decoder) string {
		var got []string
		for _, m := range messages {
			var ev outbox.Event
			decoded, err := d.Decode(append([]byte(nil), m...), &ev)
			if err != nil {
				t.Fatal(err)
			}
			if decoded.Kind == Insert {
				got = append(got, fmt.Sprintf("%d:%s@%d/%d", ev.Source, ev.ID, ev.Position.Order, ev.Position.Index))
			}
		}
		return strings.Join(got, " ")
	}
	var failing error
	d := New(Config{Columns: outboxColumns, Tables: []uint32{ours}, Sources: func(r *Relation) (int32, bool, error) {
		if r.Schema != "public" || r.Name != "outbox" {
			t.Errorf("asked for %s.%s, want public.outbox", r.Schema, r.Name)
		}
		source, is := known[r.OID]
		return source, is, failing
	}})
	if got, want := events(d), "11:1@200/0 22:1@200/0 22:2@200/1 11:2@200/1 22:3@300/0 11:3@300/0"; got != want {
		t.Errorf("both are known: got %s, want %s", got, want)
	}
	d.Reset()
	delete(known, first)
	if got, want := events(d), "22:1@200/0 22:2@200/1 22:3@300/0"; got != want {
		t.Errorf("one is known: got %s, want %s", got, want)
	}
	d.Reset()
	failing = errors.New("no connection")
	_, err := d.Decode(messages[1], new(outbox.Event))
	if e, is := errors.AsType[*SourceError](err); !is || !errors.Is(e, failing) {
		t.Errorf("the source cannot be told: got %v", err)
	}
}
