package sinktest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// panics submits records, one with headers that panic when they are read.
//
// Catches: a driver, or an engine, in which the content of one event ends the process, at each start again; a record
// that goes with the broken one.
func panics(t *testing.T, f Fixture) {
	if f.Copies {
		t.Skip("nothing in the driver looks into the headers")
	}
	const n, broken = 7, 3
	topic := f.Topic(t, 1)
	b := newBench(t, f, sink.Config{})
	var records []*sink.Record
	for i := range n {
		r := record(topic, fmt.Sprint("key-", i), fmt.Sprint("value-", i))
		if i == broken {
			block := make([]byte, 0, 16)
			r.Headers = outbox.HeadersIn(block)
			r.Headers.Add("id", []byte("broken"))
			copy(r.Headers.Block(), "\xfe\x7f") // a name of 8,191 bytes
		}
		records = append(records, r)
		b.submit(r)
	}
	b.collect(n)
	for i, r := range records {
		switch {
		case i != broken && r.Result != sink.Published:
			t.Errorf("record %d: got result %d, %v, want it published", i, r.Result, r.Reason)
		case i == broken && (r.Result != sink.Rejected || r.Reason.Code != "DRIVER_PANIC" ||
			!strings.Contains(r.Reason.Stack, "Headers")):
			t.Errorf("the broken record: got result %d, %+v, want it rejected with the stack", r.Result, r.Reason)
		}
	}
	if got := len(f.Read(t, topic)); got != n-1 {
		t.Errorf("got %d messages, want %d", got, n-1)
	}
}
