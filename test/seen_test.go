package test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// moving are the folders whose code is being cut into rooms: that an entry's code is gone there is told, until they
// stand.
var moving = []string{}

// TestEveryTestWasSeenToFail: a test that nobody has seen fail may test nothing. Seen to fail with the phrase taken
// out of a comment, an entry taken out of the record, a function of an entry renamed, and the code of its change
// taken out of it.
func TestEveryTestWasSeenToFail(t *testing.T) {
	const record = "mutate/seen.tsv"
	code, err := seen.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := seen.Load(record)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range code.Unseen(entries) {
		t.Errorf("%s %s does not say what it was seen to fail with. Break the code under it, see it fail, and say so in "+
			"its comment "+
			"(\"Seen to fail with …\"); or let `make mutate ARGS=%s` find a change, and commit test/%s", u.Package, u.Name,
			u.Package, record)
	}
	for _, e := range entries {
		if why := code.Stale(e); why != "" {
			t.Errorf("test/%s: %s %s: %s. `make mutate ARGS=-tidy` takes the line out; a test that needs one gets it from "+
				"`make mutate ARGS=%s`, or says it in its comment",
				record, e.Package, e.Test, why, e.Package)
		}
		switch why := code.Gone(e); {
		case why == "":
		case slices.ContainsFunc(moving, func(top string) bool { return strings.HasPrefix(e.Folder, top) }):
			t.Logf("test/%s: %s %s: %s", record, e.Package, e.Test, why)
		default:
			t.Errorf("test/%s: %s %s: %s. See the test fail with what is there now (`make mutate ARGS=\"-all -run %s %s\"`), "+
				"and note that",
				record, e.Package, e.Test, why, e.Test, e.Package)
		}
	}
}
