package verify_test

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
)

// committed is an event of lane "orders"/key whose id, value and headers follow from its number.
func committed(key string, n int) verify.Committed {
	id := key + strconv.Itoa(n)
	return verify.Committed{
		ID: id, Topic: "orders", Key: []byte(key),
		Value: verify.DigestOf([]byte("value of " + id)), Headers: verify.DigestOf([]byte("headers of " + id)),
	}
}

func keyless(id string) verify.Committed {
	c := committed("", 0)
	c.ID, c.Key = id, nil
	return c
}

// seen is the record that a faultless relay makes of the event.
func seen(c verify.Committed, offset int64) verify.Record {
	return verify.Record{ID: c.ID, Topic: c.Topic, Offset: offset, Key: c.Key, Value: c.Value, Headers: c.Headers}
}

// script judges three events of key a and one of key b, seen as the words say: "a1 a2 b1", a duplicate by naming it
// again.
func script(t *testing.T, records string, change func(n int, r *verify.Record)) *verify.Judge {
	t.Helper()
	j := verify.New(func(string, []byte) int32 { return 0 })
	truth := map[string]verify.Committed{}
	for _, c := range []verify.Committed{committed("a", 1), committed("a", 2), committed("b", 1), committed("a", 3),
		keyless("k")} {
		truth[c.ID] = c
		if err := j.Expect(c); err != nil {
			t.Fatal(err)
		}
	}
	for n, id := range strings.Fields(records) {
		c, known := truth[id]
		if !known {
			c = committed("x", 1)
		}
		r := seen(c, int64(n))
		if change != nil {
			change(n, &r)
		}
		j.Saw(r)
	}
	return j
}

// Each row is a run of the relay with one fault. Breaks it catches: any rule of the judge that is switched off or too
// eager; every rule has a row that needs it, and the first rows have none.
func TestJudgeNamesEachViolation(t *testing.T) {
	type counts = map[verify.Finding]int
	change := func(at int, f func(r *verify.Record)) func(int, *verify.Record) {
		return func(n int, r *verify.Record) {
			if n == at {
				f(r)
			}
		}
	}
	for _, row := range []struct {
		name    string
		records string
		change  func(int, *verify.Record)
		want    counts
		rewinds int
	}{
		{name: "as committed", records: "a1 a2 b1 a3 k", want: counts{}},
		{name: "lanes interleave freely", records: "k b1 a1 a2 a3", want: counts{}},
		{name: "lost", records: "a1 a2 b1 a3", want: counts{verify.Missing: 1}},
		{name: "lost in the middle of a lane", records: "a1 a3 b1 k", want: counts{verify.Missing: 1}},
		{name: "never committed", records: "a1 a2 b1 a3 k nobody", want: counts{verify.Unexpected: 1}},
		{name: "reordered", records: "a2 a1 b1 a3 k", want: counts{verify.Reordered: 1}},
		{name: "reordered but marked late", records: "a2 a1 b1 a3 k", change: change(1, func(r *verify.Record) {
			r.Late = true
		}), want: counts{}},
		{name: "a late one lets nobody else pass", records: "a3 a1 a2 b1 k", change: change(0, func(r *verify.Record) {
			r.Late = true
		}), want: counts{}},
		{name: "one doubled", records: "a1 a1 a2 b1 a3 k", want: counts{verify.Duplicated: 1}, rewinds: 1},
		{name: "rewind", records: "a1 a2 b1 a3 a2 a3 k", want: counts{verify.Duplicated: 2}, rewinds: 1},
		{name: "rewind of two lanes", records: "a1 b1 a2 b1 a1 a2 a3 k", want: counts{verify.Duplicated: 3}, rewinds: 2},
		{name: "rewind in a rewind", records: "a1 a2 b1 a1 a1 a2 a3 k", want: counts{verify.Duplicated: 3}, rewinds: 2},
		{name: "rewind with a gap before a new one", records: "a1 a2 a1 a3 b1 k",
			want: counts{verify.Duplicated: 1, verify.BrokenRewind: 1}, rewinds: 1},
		{name: "rewind with a gap", records: "a1 a2 a3 a1 a3 b1 k",
			want: counts{verify.Duplicated: 2, verify.BrokenRewind: 1}, rewinds: 1},
		{name: "rewind that stops short", records: "a1 a2 a3 b1 k a1",
			want: counts{verify.Duplicated: 1, verify.BrokenRewind: 1}, rewinds: 1},
		{name: "without key doubled", records: "a1 a2 b1 a3 k k", want: counts{verify.Duplicated: 1}},
		{name: "other bytes", records: "a1 a2 b1 a3 k", change: change(2, func(r *verify.Record) {
			r.Value[3]++
		}), want: counts{verify.BytesDiffer: 1}},
		{name: "other bytes in a duplicate", records: "a1 a1 a2 b1 a3 k",
			change: change(1, func(r *verify.Record) { r.Value[3]++ }),
			want:   counts{verify.Duplicated: 1, verify.BytesDiffer: 1}, rewinds: 1},
		{name: "null instead of empty", records: "a1 a2 b1 a3 k", change: change(2, func(r *verify.Record) {
			r.Key = nil
		}), want: counts{verify.KeyDiffers: 1}},
		{name: "a key where none was", records: "a1 a2 b1 a3 k", change: change(4, func(r *verify.Record) {
			r.Key = []byte{}
		}), want: counts{verify.KeyDiffers: 1}},
		{name: "other headers", records: "a1 a2 b1 a3 k", change: change(2, func(r *verify.Record) {
			r.Headers[0]++
		}), want: counts{verify.HeadersDiffer: 1}},
		{name: "other topic", records: "a1 a2 b1 a3 k", change: change(2, func(r *verify.Record) {
			r.Topic = "users"
		}), want: counts{verify.WrongTopic: 1}},
		{name: "wrong partition throughout", records: "a1 a2 b1 a3 k", change: change(2, func(r *verify.Record) {
			r.Partition = 1
		}), want: counts{verify.WrongPartition: 1}},
		{name: "key split over partitions", records: "a1 a2 b1 a3 k",
			change: change(1, func(r *verify.Record) { r.Partition = 1 }),
			want:   counts{verify.WrongPartition: 1, verify.SplitKey: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			report := script(t, row.records, row.change).Report()
			if diff := cmp.Diff(row.want, report.Counts); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if report.Rewinds != row.rewinds {
				t.Errorf("rewinds: got %d, want %d", report.Rewinds, row.rewinds)
			}
			if report.Expected != 5 || report.Seen != len(strings.Fields(row.records)) {
				t.Errorf("totals: got %d expected and %d seen, want 5 and %d", report.Expected, report.Seen,
					len(strings.Fields(row.records)))
			}
			duplicates := row.want[verify.Duplicated]
			onlyDuplicates := slices.Equal(slices.Collect(maps.Keys(row.want)), []verify.Finding{verify.Duplicated})
			if wantNil := len(row.want) == 0 || onlyDuplicates; (report.Err(duplicates) == nil) != wantNil {
				t.Errorf("Err(%d): got %v, want nil: %v", duplicates, report.Err(duplicates), wantNil)
			}
			if duplicates > 0 && report.Err(duplicates-1) == nil {
				t.Errorf("Err(%d): got nil, want an error about %d duplicates", duplicates-1, duplicates)
			}
			for kind, count := range report.Counts {
				if len(report.Examples[kind]) != min(count, 5) {
					t.Errorf("examples of %s: got %q, want %d", kind, report.Examples[kind], min(count, 5))
				}
			}
		})
	}
}

// Breaks it catches: parked or dead events counted as missing, or allowed in a topic.
func TestParkedAndDeadEventsAreInNoTopic(t *testing.T) {
	for _, fate := range []verify.Fate{verify.Parked, verify.Dead} {
		for _, appears := range []bool{false, true} {
			j := verify.New(nil)
			c := committed("a", 1)
			c.Fate = fate
			if err := j.Expect(c); err != nil {
				t.Fatal(err)
			}
			want := map[verify.Finding]int{}
			if appears {
				j.Saw(seen(c, 0))
				want[verify.Contradicted] = 1
			}
			if diff := cmp.Diff(want, j.Report().Counts); diff != "" {
				t.Errorf("%v event, appears %v: findings (-want +got):\n%s", fate, appears, diff)
			}
		}
	}
}

// Breaks it catches: a journal that lies about a place, misses an event, has one twice or too many; the place of a
// duplicate not counted as a place of its event.
func TestJournalNamesAPlaceOfEachEvent(t *testing.T) {
	at := func(offset int64) verify.Place { return verify.Place{Topic: "orders", Offset: offset} }
	for _, row := range []struct {
		name    string
		journal map[string]verify.Place
		again   string
		want    map[verify.Finding]int
	}{
		{name: "true", journal: map[string]verify.Place{"a1": at(0), "a2": at(1), "b1": at(2), "a3": at(3), "k": at(5)},
			want: map[verify.Finding]int{}},
		{name: "true by a duplicate", journal: map[string]verify.Place{"a1": at(0), "a2": at(1), "b1": at(2), "a3": at(4),
			"k": at(5)}, want: map[verify.Finding]int{}},
		{name: "wrong offset", journal: map[string]verify.Place{"a1": at(1), "a2": at(1), "b1": at(2), "a3": at(3),
			"k": at(5)}, want: map[verify.Finding]int{verify.WrongPlace: 1}},
		{name: "one not there", journal: map[string]verify.Place{"a1": at(0), "a2": at(1), "b1": at(2), "a3": at(3)},
			want: map[verify.Finding]int{verify.Unjournaled: 1}},
		{name: "one too many", journal: map[string]verify.Place{"a1": at(0), "a2": at(1), "b1": at(2), "a3": at(3),
			"k": at(5), "z": at(9)}, want: map[verify.Finding]int{verify.WrongPlace: 1}},
		{name: "one twice", journal: map[string]verify.Place{"a1": at(0), "a2": at(1), "b1": at(2), "a3": at(3), "k": at(5)},
			again: "a1", want: map[verify.Finding]int{verify.WrongPlace: 1}},
		{name: "none at all is not compared", want: map[verify.Finding]int{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			j := script(t, "a1 a2 b1 a3 a3 k", nil)
			for id, place := range row.journal {
				j.Journaled(id, place)
			}
			if row.again != "" {
				j.Journaled(row.again, row.journal[row.again])
			}
			row.want[verify.Duplicated] = 1
			if diff := cmp.Diff(row.want, j.Report().Counts); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// Seen to fail with the second one taken.
func TestTruthWithAnIDTwiceIsRefused(t *testing.T) {
	j := verify.New(nil)
	if err := j.Expect(committed("a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Expect(committed("a", 1)); err == nil {
		t.Error("the same id again: got no error")
	}
}

// A relay that crashes at random and goes back to a random place of each lane doubles records, and the judge has to
// count them exactly and find nothing else. Break it catches: a rule that calls lawful rewinds a violation.
func TestJudgeAcceptsEveryLawfulRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := verify.New(nil)
		lanes := rapid.IntRange(1, 4).Draw(t, "lanes")
		truth := make([][]verify.Committed, lanes)
		for l := range lanes {
			for n := range rapid.IntRange(0, 12).Draw(t, "events") {
				c := committed(string(rune('a'+l)), n)
				truth[l] = append(truth[l], c)
				if err := j.Expect(c); err != nil {
					t.Fatal(err)
				}
			}
		}
		next, sent := make([]int, lanes), make([]int, lanes)
		offset, doubled := int64(0), 0
		for step := 0; step < 200; step++ {
			l := rapid.IntRange(0, lanes-1).Draw(t, "lane")
			if next[l] > 0 && rapid.IntRange(0, 9).Draw(t, "crash") == 0 {
				next[l] = rapid.IntRange(0, next[l]-1).Draw(t, "back to")
			}
			if next[l] < len(truth[l]) {
				if next[l] < sent[l] {
					doubled++
				}
				j.Saw(seen(truth[l][next[l]], offset))
				offset++
				next[l]++
				sent[l] = max(sent[l], next[l])
			}
		}
		missing := 0
		for l := range lanes {
			for ; next[l] < sent[l]; next[l]++ {
				j.Saw(seen(truth[l][next[l]], offset))
				offset++
				doubled++
			}
			missing += len(truth[l]) - sent[l]
		}
		want := map[verify.Finding]int{}
		if missing > 0 {
			want[verify.Missing] = missing
		}
		if doubled > 0 {
			want[verify.Duplicated] = doubled
		}
		if diff := cmp.Diff(want, j.Report().Counts); diff != "" {
			t.Fatalf("findings (-want +got):\n%s", diff)
		}
	})
}

// Seen to fail with only lanes that have a record judged.
func TestEventOfALaneThatWasNeverSentIsMissing(t *testing.T) {
	wantFindings(t, []verify.Committed{committed("b", 0)}, nil, map[verify.Finding]int{verify.Missing: 1})
}

// Seen to fail with only the second record of an id counted.
func TestEventSentAfterEveryCrashIsDuplicatedEachTime(t *testing.T) {
	one := committed("a", 0)
	wantFindings(t, []verify.Committed{one}, []verify.Committed{one, one, one, one},
		map[verify.Finding]int{verify.Duplicated: 3})
}

// Seen to fail with all keys of a topic in one lane.
func TestCrashesInTwoLanesAreCountedApart(t *testing.T) {
	a, b := committed("a", 0), committed("b", 0)
	wantFindings(t, []verify.Committed{a, b}, []verify.Committed{a, b, b, a, a},
		map[verify.Finding]int{verify.Duplicated: 3})
}

// wantFindings judges the records of a run.
func wantFindings(t *testing.T, truth, records []verify.Committed, want map[verify.Finding]int) {
	t.Helper()
	j := verify.New(nil)
	for _, c := range truth {
		if err := j.Expect(c); err != nil {
			t.Fatal(err)
		}
	}
	for offset, c := range records {
		j.Saw(seen(c, int64(offset)))
	}
	if diff := cmp.Diff(want, j.Report().Counts); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// The values are those of Kafka's own UtilsTest.testMurmur2, as positive numbers. Break it catches: a wrong tail, a
// signed shift.
func TestMurmur2AgreesWithTheJavaClient(t *testing.T) {
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		const many = 1<<31 - 1
		if got, want := verify.Murmur2([]byte(key), many), (hash&0x7fffffff)%many; got != want {
			t.Errorf("%q: got %d, want %d", key, got, want)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	events := make([]verify.Committed, b.N)
	for n := range events {
		events[n] = committed(strconv.Itoa(n%1000), n)
	}
	b.ReportAllocs()
	b.ResetTimer()
	j := verify.New(nil)
	for _, c := range events {
		if err := j.Expect(c); err != nil {
			b.Fatal(err)
		}
	}
	for n, c := range events {
		j.Saw(seen(c, int64(n)))
	}
	if err := j.Report().Err(0); err != nil {
		b.Fatal(err)
	}
}

// Break it catches: two lanes taken for one because topic and key are run together.
func TestLanesAreTopicAndKeyApart(t *testing.T) {
	j := verify.New(nil)
	one, other := committed("bc", 1), committed("c", 1)
	one.Topic, other.Topic = "a", "ab"
	for _, c := range []verify.Committed{one, other} {
		if err := j.Expect(c); err != nil {
			t.Fatal(err)
		}
	}
	j.Saw(seen(other, 0))
	j.Saw(seen(one, 0))
	if err := j.Report().Err(0); err != nil {
		t.Errorf("events of two lanes, the second first: got %v, want no finding", err)
	}
}
