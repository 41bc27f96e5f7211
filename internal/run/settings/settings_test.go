package settings

import (
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// Breaks it catches: a key that reaches no one. Seen to fail with the schedule left out, and with the stream connected
// by the URL of the SQL side although it has one of its own.
func TestKeysReachWhatTheyAreFor(t *testing.T) {
	c := config.Default()
	c.Postgres.URL, c.Retry.Schedule = "postgres://sql", []config.Duration{config.Duration(time.Minute)}
	if got := Replication(c).URL; got != "postgres://sql" {
		t.Errorf("the stream's URL without one of its own: got %s", got)
	}
	c.Postgres.ReplicationURL = "postgres://stream"
	if got := Replication(c).URL; got != "postgres://stream" {
		t.Errorf("the stream's URL: got %s", got)
	}
	if got := Store(c); got.URL != "postgres://sql" || got.HoldDead || got.Password != nil {
		t.Errorf("the store: got %+v", got)
	}
	if got := Retry(c.Retry).Schedule; !slices.Equal(got, []time.Duration{time.Minute}) {
		t.Errorf("the schedule: got %v", got)
	}
}
