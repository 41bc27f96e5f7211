package peers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
)

// log is a log of ten events of two keys, appended ten milliseconds after each commit, and its truth.
func log(began time.Time) (events []event, arrivals []arrival) {
	offsets := make(map[int32]int64)
	for _, key := range []string{"a", "b"} {
		for n := range 5 {
			id := fmt.Sprintf("%s%d", key, n)
			at := began.Add(time.Duration(n) * time.Second)
			events = append(events, event{verify.Committed{ID: id, Topic: "order", Key: []byte(key),
				Value: verify.DigestOf([]byte(id))}, at})
			partition := verify.Murmur2([]byte(key), 6)
			arrivals = append(arrivals, arrival{verify.Record{ID: id, Topic: "order", Partition: partition,
				Offset: offsets[partition], Key: []byte(key), Value: verify.DigestOf([]byte(id))},
				at.Add(10 * time.Millisecond)})
			offsets[partition]++
		}
	}
	return events, arrivals
}

// Breaks it catches: a judge that is blind to what the table is about, which would call every peer right. Seen to fail
// with lost events taken from another finding, with broken rewinds left out, and with other findings not counted.
func TestJudgeNoticesALossADoubleASwapAndChangedBytes(t *testing.T) {
	began := time.Now()
	type counts struct{ lost, doubled, disordered, rewritten, other int }
	for _, c := range []struct {
		name  string
		spoil func(a []arrival) []arrival
		want  counts
	}{
		{"nothing", func(a []arrival) []arrival { return a }, counts{}},
		{"a loss", func(a []arrival) []arrival { return slices.Delete(a, 2, 3) }, counts{lost: 1}},
		{"the last one lost", func(a []arrival) []arrival { return a[:9] }, counts{lost: 1}},
		{"a double at once", func(a []arrival) []arrival { return slices.Insert(a, 3, a[2]) }, counts{doubled: 1}},
		{"all again from one on", func(a []arrival) []arrival { return append(a, a[7:]...) }, counts{doubled: 3}},
		{"an old one again, and on", func(a []arrival) []arrival { return slices.Insert(a, 3, a[0]) },
			counts{doubled: 1, disordered: 1}},
		{"a swap", func(a []arrival) []arrival { a[1], a[2] = a[2], a[1]; return a }, counts{disordered: 1}},
		{"other bytes", func(a []arrival) []arrival { a[4].Value = verify.DigestOf(nil); return a }, counts{rewritten: 1}},
		{"another key", func(a []arrival) []arrival { a[4].Key = []byte("b"); return a }, counts{other: 1}},
	} {
		events, arrivals := log(began)
		v, err := judge(events, c.spoil(arrivals), map[string]int32{"order": 6})
		if err != nil {
			t.Fatal(err)
		}
		got := counts{v.lost, v.doubled, v.disordered, v.rewritten, min(v.other, 1)}
		if got != c.want {
			t.Errorf("%s: got %+v, want %+v (%v)", c.name, got, c.want, v.report)
		}
	}
}

// Breaks it catches: times that are taken from the wrong event, or from a repetition. Seen to fail with the last
// appearance in place of the first, with events after the fault counted, and with the topic not looked at.
func TestTimesAreOfFirstAppearances(t *testing.T) {
	began := time.Now()
	events, arrivals := log(began)
	again := arrivals[3]
	again.at = again.at.Add(time.Hour)
	arrivals[2].at = began.Add(7 * time.Second) // committed after 2 s
	other := event{verify.Committed{ID: "p", Topic: "payment"}, began.Add(time.Second)}
	v, err := judge(append(events, other), append(arrivals, again), map[string]int32{"order": 6, "payment": 6})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.recovery(began.Add(3*time.Second)), 4*time.Second; got != want {
		t.Errorf("recovery: got %v, want %v", got, want)
	}
	if got := v.recovery(began.Add(1500 * time.Millisecond)); got != 0 {
		t.Errorf("recovery before the slow one: got %v, want 0", got)
	}
	waits, never := v.waits("order", began, began.Add(3*time.Second))
	if len(waits) != 8 || never != 0 || waits[7] != 5*time.Second || waits[6] != 10*time.Millisecond {
		t.Errorf("waits: got %v and %d that never came, want seven of 10ms, one of 5s, none", waits, never)
	}
	if waits, never := v.waits("payment", began, began.Add(time.Hour)); len(waits) != 0 || never != 1 {
		t.Errorf("waits of the other topic: got %v and %d, want none and one that never came", waits, never)
	}
}
