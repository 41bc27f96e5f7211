package verify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Finding is a kind of difference between the truth and the topics.
type Finding string

// The findings. Duplicated alone is no violation of a promise: a crash may double events; the caller compares the
// count with what it allows.
const (
	Missing        Finding = "missing"         // committed, in no topic
	Unexpected     Finding = "unexpected"      // in a topic, never committed
	Duplicated     Finding = "duplicated"      // further appearances of an id
	Reordered      Finding = "reordered"       // a first appearance after a later event's of its lane
	BrokenRewind   Finding = "broken rewind"   // a duplicate that is not part of a contiguous repetition
	BytesDiffer    Finding = "bytes differ"    // another value than the committed one
	HeadersDiffer  Finding = "headers differ"  // other headers than those committed
	KeyDiffers     Finding = "key differs"     // another key than the committed one
	WrongTopic     Finding = "wrong topic"     // in another topic than the truth says
	WrongPartition Finding = "wrong partition" // not where the partitioner puts the key
	SplitKey       Finding = "split key"       // a key on a second partition
	Contradicted   Finding = "contradicted"    // in a topic although parked or dead by the relay's tables
	WrongPlace     Finding = "wrong place"     // a journal row that does not name a place of its event
	Unjournaled    Finding = "unjournaled"     // in a topic, not in the journal
)

// examplesKept is how many of each finding are told in words.
const examplesKept = 5

// Report is a verdict.
type Report struct {
	Expected int                  // events in the truth
	Seen     int                  // records in the topics
	Journal  int                  // journal rows
	Rewinds  int                  // how often a lane went back; one crash is one rewind in each lane that it doubles
	Counts   map[Finding]int      // findings, by kind; kinds without one are absent
	Examples map[Finding][]string // the first few of each kind, never with a payload
}

func (r *Report) add(kind Finding, format string, args ...any) {
	if r.Counts == nil {
		r.Counts, r.Examples = make(map[Finding]int), make(map[Finding][]string)
	}
	r.Counts[kind]++
	if len(r.Examples[kind]) < examplesKept {
		r.Examples[kind] = append(r.Examples[kind], fmt.Sprintf(format, args...))
	}
}

func (r *Report) clone() Report {
	c := *r
	c.Counts = maps.Clone(r.Counts)
	c.Examples = make(map[Finding][]string, len(r.Examples))
	for kind, examples := range r.Examples {
		c.Examples[kind] = slices.Clone(examples)
	}
	if c.Counts == nil {
		c.Counts = make(map[Finding]int)
	}
	return c
}

// Duplicates is the number of appearances beyond the first of each event.
func (r Report) Duplicates() int { return r.Counts[Duplicated] }

// Err is nil when there is no finding, apart from at most the given number of duplicates; -1 allows any.
func (r Report) Err(duplicates int) error {
	kinds := slices.Sorted(maps.Keys(r.Counts))
	if duplicates < 0 || r.Counts[Duplicated] <= duplicates {
		kinds = slices.DeleteFunc(kinds, func(kind Finding) bool { return kind == Duplicated })
	}
	if len(kinds) == 0 {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%v; of these not allowed:", r)
	for _, kind := range kinds {
		fmt.Fprintf(&text, "\n%d %s:", r.Counts[kind], kind)
		for _, example := range r.Examples[kind] {
			fmt.Fprintf(&text, "\n  %s", example)
		}
	}
	return errors.New(text.String())
}

// String is one line of counts.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d committed, %d records seen", r.Expected, r.Seen)
	if r.Journal > 0 {
		fmt.Fprintf(&text, ", %d journal rows", r.Journal)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&text, ", %d %s", r.Counts[kind], kind)
	}
	if r.Rewinds > 0 {
		fmt.Fprintf(&text, " in %d rewinds of lanes", r.Rewinds)
	}
	return text.String()
}
