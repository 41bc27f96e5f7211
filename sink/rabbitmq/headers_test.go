package rabbitmq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// outcomes submits the records and gives what became of each, in the order in which that was known.
func outcomes(t *testing.T, d sink.Driver, records []*sink.Record) (results []*sink.Record) {
	t.Helper()
	f := sinktest.NewFlow(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := f.Submit(ctx, records); err != nil {
		t.Fatal(err)
	}
	for len(results) < len(records) {
		some, err := f.Results(ctx, nil)
		if err != nil {
			t.Fatalf("%d of %d records have a result: %v", len(results), len(records), err)
		}
		results = append(results, some...)
		f.Settled(some)
	}
	return results
}

// Each name in turn is the header of one event among others. Breaks it catches: an event at which the server closes the
// channel again and again, or whose string a reader takes for the server's own. Written, but not run, to fail with each
// name left out of the table: CC and BCC hold their neighbours, the others arrive.
func TestNamesThatTheBrokerKeepsAreRefusedAlone(t *testing.T) {
	b := newBed(t)
	topic := b.topic(t)
	names := rabbitmq.Kept()
	records := sinktest.Events(topic, 0, 3*len(names))
	for n, name := range names {
		records[3*n+1].Headers.Add(name, []byte("elsewhere"))
	}
	for n, r := range records { // or those behind a refused one of their key are given back
		r.Key = fmt.Append(nil, "k", n)
	}
	refused := 0
	for _, r := range outcomes(t, b.driver(t), records) {
		if r.Result == sink.Rejected && r.Reason.Code == "INVALID_HEADER" {
			refused++
		}
	}
	if got := len(b.read(t, topic)); refused != len(names) || got != 2*len(names) {
		t.Errorf("got %d refused and %d in the queue, want %d and %d", refused, got, len(names), 2*len(names))
	}
}

// Two of many messages make the server close the channel, for a reason that no table has. Breaks it catches: the wave
// sent again and again, its front doubled each time and its end never sent; a neighbour that dies. Written, but not
// run, to fail with the wave sent again as it was, and with what was confirmed before the close forgotten.
func TestMessageThatClosesTheChannelDiesAlone(t *testing.T) {
	rabbitmq.Send(t, "CC")
	b := newBed(t)
	topic := b.topic(t)
	d := b.driver(t)
	const n = 64
	var records []*sink.Record
	for i := range n { // a key each, so that they are one wave
		r := &sink.Record{Topic: topic, Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, i), Cost: 100}
		r.Headers.Add("id", fmt.Append(nil, i))
		if i == 20 || i == 50 {
			r.Headers.Add("CC", []byte("elsewhere"))
		}
		records = append(records, r)
	}
	dead := map[string]bool{}
	for _, r := range outcomes(t, d, records) {
		switch {
		case r.Result == sink.Published:
		case r.Result == sink.Rejected && r.Reason.Code == "CHANNEL_CLOSED":
			dead[string(r.Key)] = true
		default:
			t.Errorf("%s: got result %v, %v", r.Key, r.Result, r.Reason)
		}
	}
	if len(dead) != 2 || !dead["k20"] || !dead["k50"] {
		t.Errorf("dead: got %v, want k20 and k50", dead)
	}
	times := map[string]int{}
	for _, m := range b.read(t, topic) {
		times[string(m.Value)]++
	}
	doubled := 0
	for _, c := range times {
		doubled += c - 1
	}
	if len(times) != n-2 || doubled > int(d.PossibleDuplicates()) || doubled > n {
		t.Errorf("got %d messages, %d doubled, %d possible; want %d", len(times), doubled, d.PossibleDuplicates(), n-2)
	}
}

// Breaks it catches: consumers that drop duplicates by a row's word, or by none. Written, but not run, to fail with the
// row's header sent, and with the property left empty.
func TestMessageIDIsTheEventsOrTheEventIsRefused(t *testing.T) {
	b := newBed(t)
	topic := b.topic(t)
	records := sinktest.Events(topic, 0, 2)
	records[0].Headers.Add("x-event-id", []byte("forged"))
	long := &sink.Record{Topic: topic, Key: []byte("k"), Value: []byte("v"), Cost: 100}
	long.Headers.Add("id", []byte(strings.Repeat("i", 256)))
	for _, r := range outcomes(t, b.driver(t), append(records, long)) {
		if refused := r.Result == sink.Rejected; refused != (r == long) || refused && r.Reason.Code != "INVALID_ID" {
			t.Errorf("%.20s: got %v, %v", r.Key, r.Result, r.Reason)
		}
	}
	if got := len(b.read(t, topic)); got != 2 { // it compares the header with the property
		t.Errorf("got %d messages, want 2", got)
	}
}
