package message

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/config"
)

// Break it catches: a copy whose headers are not those of a message: created_at as Postgres prints it, no added
// columns. Seen to fail with the columns' text as it is.
func TestCopyOfWhatCannotBeAMessageHasTheHeadersOfOne(t *testing.T) {
	r := newRouted(t, func(c *config.Config) { c.Message.Headers = map[string]string{"actor": "x-actor"} })
	e := anEvent()
	e.Extra, e.Headers = [][]byte{text("bob")}, text(`[]`)
	want := []string{"id=e1", "event_type=made", "aggregate_type=order", "created_at=2026-11-21T16:36:32.5Z",
		"x-actor=bob",
		"x-outbox-position=16/B374D848/4", "x-outbox-source=sys/1/7", "x-outbox-epoch=3"}
	if diff := cmp.Diff(want, headerList(r.rawHeaders(&e))); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	e.CreatedAt, e.EventType = text("infinity"), nil
	want = append([]string{"id=e1", "aggregate_type=order"}, want[4:]...)
	if diff := cmp.Diff(want, headerList(r.rawHeaders(&e))); diff != "" {
		t.Errorf("headers without a type, of no time (-want +got):\n%s", diff)
	}
}
