package login_test

import (
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
)

// Breaks it catches: a password that may go over a network in clear without a word; a warning where nothing leaves the
// machine; a host named twice. Seen to fail with the fallbacks, which sslmode=prefer adds, left out, and with
// each exception left out; the row with @ failed while such hosts were one, which pgx reaches by TCP.
func TestHostsThatMayBeTalkedToInClearAreNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"postgres://u:p@db.internal/d":                               {"db.internal"},
		"postgres://u:p@db.internal/d?sslmode=prefer":                {"db.internal"},
		"postgres://u:p@db.internal/d?sslmode=allow":                 {"db.internal"},
		"postgres://u:p@10.0.0.7/d?sslmode=disable&pool_max_conns=3": {"10.0.0.7"},
		"host=db1,db2 user=u dbname=d":                               {"db1", "db2"},
		"host=@db user=u dbname=d":                                   {"@db"},
		"host=db,db port=5432,5433 user=u dbname=d":                  {"db"},
		"postgres://u:p@db.internal/d?sslmode=require":               nil,
		"postgres://u:p@db.internal/d?sslmode=verify-full":           nil,
		"postgres://u:p@127.0.0.1/d":                                 nil,
		"postgres://u:p@[::1]/d":                                     nil,
		"postgres://u:p@localhost/d":                                 nil,
		"host=/tmp user=u dbname=d":                                  nil,
		"no address":                                                 nil,
	} {
		if got := login.Unencrypted(text); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
