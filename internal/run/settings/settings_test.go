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

// Breaks it catches: an event that waits for both, the look at the stream and kafka.linger, and so for longer than the
// target; looks that lie apart although no one allowed it.
func TestLingerIsAPartOfTheLatencyTarget(t *testing.T) {
	ms := func(n int) config.Duration { return config.Duration(n) * config.Duration(time.Millisecond) }
	for _, test := range []struct {
		target, linger int
		want           time.Duration
	}{{0, 0, 0}, {10, 0, 10 * time.Millisecond}, {10, 4, 6 * time.Millisecond}, {10, 50, 0}, {0, 50, 0}} {
		c := config.Default()
		c.LatencyTarget, c.Kafka.Linger = ms(test.target), ms(test.linger)
		if got := Replication(c).ReadInterval; got != test.want {
			t.Errorf("latency_target %v, kafka.linger %v: got looks %v apart, want %v", c.LatencyTarget, c.Kafka.Linger, got,
				test.want)
		}
	}
}
