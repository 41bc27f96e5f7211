package nats_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Break it catches: a check that calls a server good whose acknowledged messages a power cut takes. Seen to fail with
// nothing called risky, and with sync_interval not named.
func TestExamineNamesWhatAPowerCutTakes(t *testing.T) {
	harness.Full(t)
	d := newBed(t).driver(t)
	defer func() { _ = d.Close() }()
	text, risky, err := d.Examine(t.Context(), "")
	if err != nil || !risky || !strings.Contains(text, "sync_interval") {
		t.Errorf("got %q, risky %t, %v; want sync_interval named, risky", text, risky, err)
	}
}

// Breaks it catches: white space at the ends of a value, which clients cut off, so that two ids become one; a message
// that clients take for the server's own. Seen to fail with white space not looked at, at one end or at both, and with
// the header Status not looked at.
func TestValuesThatDoNotArriveAsTheyAreAreRefused(t *testing.T) {
	b := newBed(t)
	subject := b.topic(t)
	f := sinktest.NewFlow(t, b.driver(t))
	for _, pair := range [][3]string{{"id", "trail ", "v"}, {"a", " 1", "v"}, {"a", "1\t", "v"}, {"Status", "100", ""}} {
		r := &sink.Record{Topic: subject, Value: []byte(pair[2]), Cost: 100}
		r.Headers.Add(pair[0], []byte(pair[1]))
		if _, err := f.Submit(t.Context(), []*sink.Record{r}); err != nil {
			t.Fatal(err)
		}
		some, err := f.Results(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Settled(some)
		if r.Result != sink.Rejected || r.Reason.Code != "INVALID_HEADER" {
			t.Errorf("%q: got result %d, reason %v; want it rejected", pair, r.Result, r.Reason)
		}
	}
	if found := b.read(t, subject); len(found) > 0 {
		t.Errorf("got %d messages, want none", len(found))
	}
}
