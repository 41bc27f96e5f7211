package sinktest

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// browsed checks that the driver reads the topic as it was written: all of it, and from its middle.
func browsed(t *testing.T, d sink.Browser, written []*sink.Record) {
	t.Helper()
	topic := written[0].Topic
	if e, err := d.Extent(t.Context(), topic+"-none"); err != nil || e.Exists {
		t.Errorf("extent of a topic that does not exist: got %+v, %v", e, err)
	}
	extent, err := d.Extent(t.Context(), topic)
	if err != nil || !extent.Exists || extent.Thins || extent.Deleted != 0 || extent.Note != "" {
		t.Fatalf("extent: got %+v, %v", extent, err)
	}
	from, found := extent.First, []int64{}
	for _, want := range []int{0, 2} { // how many are left out
		left := written[want:]
		err = d.Browse(t.Context(), topic, from, extent.Next, func(s sink.Stored) error {
			found = append(found, s.Offset)
			if len(left) == 0 {
				t.Fatalf("browse from %d: got one more, at %d", from, s.Offset)
			}
			if r := left[0]; !same(s.Key, r.Key) || !same(s.Value, r.Value) || idOf(s) != recordID(r) {
				t.Errorf("browse, offset %d: got key %q value %.20q id %q, want %q %.20q %q", s.Offset, s.Key, s.Value, idOf(s),
					r.Key, r.Value, recordID(r))
			}
			left = left[1:]
			return nil
		})
		if err != nil || len(left) > 0 || !slices.IsSorted(found[want:]) || found[len(found)-1] != extent.Next-1 {
			t.Fatalf("browse from %d to %d: got offsets %v, %v", from, extent.Next, found, err)
		}
		from, found = found[2], found[:2]
	}
	err = d.Browse(t.Context(), topic, extent.Next, extent.Next, func(sink.Stored) error {
		t.Error("browse from the end: got a record")
		return nil
	})
	if err != nil {
		t.Errorf("browse from the end: %v", err)
	}
}

func idOf(s sink.Stored) string {
	for name, value := range s.Headers {
		if name == "id" {
			return string(value)
		}
	}
	return ""
}

func recordID(r *sink.Record) string {
	for name, value := range r.Headers.All() {
		if name == "id" {
			return string(value)
		}
	}
	return ""
}
