package decoder

import (
	"errors"
	"testing"
)

// Breaks it catches: rows taken for what the catalog says today, or for what they were before; a place in the WAL that
// no session gets past. Seen to fail with the first announcement not looked at, with messages of both types made in one
// session, with a domain taken for what was before it, and with each other type refused.
func TestPayloadFollowsTheStreamAndNotTheCatalog(t *testing.T) {
	const jsonb, text, varchar, domain, another = 3802, 25, 1043, 16500, 16501
	for _, test := range []struct {
		name    string
		catalog string
		used    bool // before the last one
		oids    []uint32
		want    string
		changed bool // by the last one
		retyped bool
	}{
		{"as in the catalog", "jsonb", false, []uint32{jsonb}, "jsonb", false, false},
		{"older than the catalog", "text", false, []uint32{jsonb}, "jsonb", true, false},
		{"again", "text", true, []uint32{jsonb, jsonb}, "jsonb", false, false},
		{"another, and nothing was made", "text", false, []uint32{jsonb, byteaOID}, "bytea", true, false},
		{"another, and messages were made", "jsonb", true, []uint32{jsonb, text}, "jsonb", false, true},
		{"another that is the same to a message", "text", true, []uint32{text, varchar}, "text", false, false},
		{"a domain", "json", false, []uint32{domain}, "json", false, false},
		{"a domain after another type", "text", false, []uint32{jsonb, domain}, "text", true, false},
		{"another domain, and messages were made", "text", true, []uint32{domain, another}, "text", false, true},
	} {
		p := NewPayload(test.catalog)
		var changed bool
		var err error
		for i, oid := range test.oids {
			p.Used = test.used && i == len(test.oids)-1
			changed, err = p.Becomes(oid)
		}
		if p.Type != test.want || changed != test.changed || errors.Is(err, ErrRetyped) != test.retyped {
			t.Errorf("%s: got %s, changed %t, %v; want %s, %t, retyped %t", test.name, p.Type, changed, err, test.want,
				test.changed, test.retyped)
		}
	}
}
