package verify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// auditor makes one whose sorters write files soon.
func auditor(t interface {
	Fatal(...any)
	Helper()
}) *Auditor {
	t.Helper()
	a, err := NewAuditor("")
	if err != nil {
		t.Fatal(err)
	}
	a.order.memory, a.lost.memory = 200, 200
	return a
}

// The auditor and the judge look at the same histories: rows that were published, doubled, left out, changed or moved
// to another key, sent late, and put out of order, over a few lanes and partitions. Breaks it catches: any count of the
// auditor that differs from the judge's, or from what was done. Seen to fail with the runs of the sorter not merged,
// and with late records judged like others.
func TestAuditorCountsAsTheJudgeDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, j := auditor(t), New(nil)
		defer func() { _ = a.Close() }()
		lanes := rapid.IntRange(1, 4).Draw(t, "lanes")
		var records []Record
		var lost []string
		n, pending := rapid.IntRange(0, 60).Draw(t, "rows"), 0
		rows := make([]Row, n)
		for i := range n {
			lane := rapid.IntRange(0, lanes).Draw(t, "lane")
			r := Row{ID: fmt.Sprint("id", i), Topic: "orders", Value: DigestOf(fmt.Append(nil, i)), State: StatedPublished,
				Order: int64(i) - 30}
			if lane < lanes {
				r.Key = fmt.Append(nil, "k", lane)
			}
			record := Record{ID: r.ID, Topic: r.Topic, Partition: int32(lane), Key: r.Key, Value: r.Value}
			switch rapid.SampledFrom([]string{"right", "right", "right", "right", "twice", "lost", "pending", "changed", "late",
				"parked"}).Draw(t, "fate") {
			case "right":
				records = append(records, record)
			case "twice":
				records = append(records, record, record)
			case "lost":
				lost = append(lost, r.ID)
			case "pending":
				r.State = Pending
				pending++
			case "changed":
				record.Value[0]++
				records = append(records, record)
			case "late":
				record.Late = true
				records = append(records, record)
			case "parked":
				r.State = StatedParked
			}
			rows[i] = r
		}
		for range rapid.IntRange(0, 3).Draw(t, "swaps") {
			if len(records) > 1 {
				i := rapid.IntRange(0, len(records)-2).Draw(t, "swap")
				records[i], records[i+1] = records[i+1], records[i]
			}
		}
		place := map[string]Place{}
		for i := range records {
			records[i].Offset = int64(i)
			place[records[i].ID] = Place{records[i].Topic, records[i].Partition, records[i].Offset}
		}
		for _, r := range rows {
			fate := Published
			if r.State == StatedParked {
				fate = Parked
			}
			if err := j.Expect(Committed{ID: r.ID, Topic: r.Topic, Key: r.Key, Value: r.Value, Fate: fate}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range rows {
			if rows[i].Place = place[rows[i].ID]; rows[i].Place == (Place{}) && rows[i].State == StatedPublished {
				rows[i].Place = Place{"orders", 0, 1000}
			}
		}
		for _, i := range rand.Perm(n) { // in any order
			if err := a.Row(rows[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range records {
			j.Saw(r)
			if err := a.Record(r); err != nil {
				t.Fatal(err)
			}
		}
		got, err := a.Finish(func(Place) Absence { return Gone }, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		want := j.Report()
		for _, c := range []struct {
			name      string
			got, want int
		}{
			{"rows", got.Rows, n}, {"records", got.Records, want.Seen}, {"missing", got.Missing, want.Counts[Missing]},
			{"duplicated", got.Duplicated, want.Counts[Duplicated]}, {"out of order", got.OutOfOrder, want.Counts[Reordered]},
			{"different", got.Different, want.Counts[BytesDiffer]}, {"lost", got.Lost, len(lost)},
			{"pending", got.Pending, pending},
			{"misplaced", got.Misplaced, 0}, {"others", got.Others, 0},
		} {
			if c.got != c.want {
				t.Errorf("%s: got %d, want %d; %+v", c.name, c.got, c.want, got.Examples)
			}
		}
		var ids []string
		if err := a.Lost(func(id string) error {
			ids = append(ids, id)
			return nil
		}); err != nil || !slices.Equal(ids, lost) {
			t.Errorf("lost ids: got %v and %v, want %v in their order", ids, err, lost)
		}
	})
}

// What is in no topic is lost only if the topic must still have it. Seen to fail with the reason not asked for.
func TestAuditorTellsLostFromRemoved(t *testing.T) {
	a := auditor(t)
	defer func() { _ = a.Close() }()
	row := func(id string, state State, offset int64) Row {
		r := Row{ID: id, Topic: "t", State: state}
		if offset >= 0 {
			r.Place = Place{"t", 0, offset}
		}
		return r
	}
	for _, r := range []Row{
		row("gone", StatedPublished, 9), row("removed", StatedPublished, 3), row("unread", StatedPublished, 12),
		row("somewhere", StatedPublished, -1),
		row("pending", Pending, -1), row("dead", StatedDead, -1), row("elsewhere", StatedPublished, 9),
		row("foreign", StatedPublished, 7), row("foreign", Pending, -1),
	} {
		if err := a.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	for n, id := range []string{"elsewhere", "foreign", "nobody"} {
		if err := a.Record(Record{ID: id, Topic: "t", Offset: int64(6 + n), Value: Digest{}}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := a.Finish(func(p Place) Absence {
		switch p.Offset {
		case 3:
			return Removed
		case 12:
			return Unread
		}
		return Gone
	}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.IDs)
	if want := []string{"gone", "pending", "unread"}; !slices.Equal(got.IDs, want) {
		t.Errorf("missing: got %v, want %v", got.IDs, want)
	}
	got.Examples, got.IDs = nil, nil
	want := Audited{Rows: 8, Expected: 5, Records: 3, Missing: 3, Pending: 1, Lost: 1, Misplaced: 1, Dead: 1, Unjudged: 1,
		Expired: 1, Others: 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The disk that it takes for a row and its record is told, beside the time.
func BenchmarkAuditor(b *testing.B) {
	a, err := NewAuditor(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	b.ReportAllocs()
	value := DigestOf([]byte("value"))
	key := func(n int) []byte { return fmt.Append(nil, "key", n%10_000) }
	for n := range b.N {
		if err := a.Row(Row{ID: fmt.Sprintf("%036d", n), Topic: "t", Key: key(n), Value: value, State: StatedPublished,
			Place: Place{"t", 0, int64(n)}, Order: int64(n)}); err != nil {
			b.Fatal(err)
		}
	}
	for n := range b.N {
		if err := a.Record(Record{ID: fmt.Sprintf("%036d", n), Topic: "t", Offset: int64(n), Key: key(n),
			Value: value}); err != nil {
			b.Fatal(err)
		}
	}
	got, err := a.Finish(func(Place) Absence { return Gone }, func(int) {})
	if err != nil || got.Missing+got.OutOfOrder+got.Duplicated+got.Misplaced != 0 {
		b.Fatalf("got %+v, %v", got, err)
	}
	bytes := int64(0)
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
	}
	b.ReportMetric(float64(bytes)/float64(b.N), "disk-B/op")
}

// Breaks it catches: an event whose offset the journal does not have called misplaced, or its loss not seen; a time
// that does not come back. Seen to fail with such a place compared with where the record is.
func TestAuditorJudgesEventsThatAreSomewhere(t *testing.T) {
	a := auditor(t)
	defer func() { _ = a.Close() }()
	at := time.UnixMilli(1_800_000_000_123)
	for _, id := range []string{"there", "gone"} {
		r := Row{ID: id, Topic: "t", State: StatedPublished, Place: Somewhere("t", at)}
		if err := a.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Record(Record{ID: "there", Topic: "t", Offset: 5}); err != nil {
		t.Fatal(err)
	}
	v, err := a.Finish(func(p Place) Absence {
		if got, somewhere := p.Journaled(); !somewhere || !got.Equal(at) {
			t.Errorf("got %v, %t, want %v", got, somewhere, at)
		}
		return Gone
	}, func(int) {})
	if err != nil || v.Misplaced != 0 || v.Lost != 1 || v.Missing != 1 {
		t.Errorf("got %+v, %v, want one lost and none misplaced", v, err)
	}
}

// Ids that are used again: rows and records of one id, with the times at which the rows of both were made. Breaks it
// catches: a former event's record taken for that of a row which is not published yet, or for a duplicate, or for
// another value of the row; a published row called missing because created_at was changed after it was sent.
func TestAuditorTellsEventsOfOneIDApart(t *testing.T) {
	const former, now = 1_800_000_000_000_000, 1_800_000_000_000_001
	a := auditor(t)
	defer func() { _ = a.Close() }()
	value := DigestOf([]byte("now"))
	for n, id := range []string{"waits", "sent", "sent somewhere", "changed", "placed", "twice", "says nothing"} {
		r := Row{ID: id, Topic: "t", Value: value, State: StatedPublished, Made: MadeAt(now), Order: int64(n)}
		switch id {
		case "waits":
			r.State = Pending
		case "sent", "placed":
			r.Place = Place{"t", 0, int64(10 + n)}
		case "twice":
			r.Place = Place{"t", 0, 30}
		}
		if err := a.Row(r); err != nil {
			t.Fatal(err)
		}
	}
	see := func(id string, offset, made int64, value Digest) {
		r := Record{ID: id, Topic: "t", Offset: offset, Value: value}
		if made != 0 {
			r.Made = MadeAt(made)
		}
		if err := a.Record(r); err != nil {
			t.Fatal(err)
		}
	}
	other := DigestOf([]byte("former"))
	see("waits", 0, former, other)
	see("sent", 1, former, other)
	see("sent", 11, now, value)
	see("sent somewhere", 12, now, value)
	see("sent somewhere", 2, former, other)
	see("changed", 3, former, value)
	see("placed", 14, former, value)
	see("twice", 29, now, value)
	see("twice", 30, now, value)
	see("says nothing", 31, 0, value)
	got, err := a.Finish(func(Place) Absence { return Gone }, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.IDs, []string{"waits"}) {
		t.Errorf("missing: got %v, want the row that waits; %+v", got.IDs, got.Examples)
	}
	got.Examples, got.IDs = nil, nil
	want := Audited{Rows: 7, Expected: 7, Records: 10, Missing: 1, Pending: 1, Duplicated: 1, Others: 3}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
