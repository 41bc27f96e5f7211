package outbox_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Breaks it catches: a part of the name that two asterisks both count; an end that begins before the rest has ended.
func TestPatternFitsWholeNames(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"outbox", "outbox", true}, {"outbox", "outbox_events", false}, {"outbox", "my_outbox", false},
		{"tenant_*", "tenant_1", true}, {"tenant_*", "tenant_", true}, {"tenant_*", "tenantx1", false},
		{"*", "", true}, {"*", "anything", true}, {"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*a", "aba", true},
		{"a*b*a", "aa", false}, {"*b*b*", "b", false}, {"*b*b*", "abab", true}, {"a.b*", "a.bc", true}, {"é*", "éa", true},
	} {
		if got := (outbox.Pattern{Schema: test.pattern, Table: "t"}).Fits(test.name, "t"); got != test.want {
			t.Errorf("%q fits %q: got %t, want %t", test.pattern, test.name, got, test.want)
		}
	}
	one, several := outbox.Pattern{Schema: "public", Table: "outbox"}, outbox.Pattern{Schema: "*", Table: "t"}
	if one.Several() || !several.Several() {
		t.Error("several: want it of names with an asterisk, and of no others")
	}
}
