package config

import "testing"

// Breaks it catches: a key that is not the one that was meant. Seen to fail with the last word not looked at, and with
// the first candidate whatever it is.
func TestTheNearestIsWhatWasMeant(t *testing.T) {
	keys := []string{"postgres.url", "kafka.brokers", "outbox.table", "kafka.linger"}
	for name, want := range map[string]string{
		"brokers": "kafka.brokers", "outbox.tabel": "outbox.table", "postgres.uri": "postgres.url", "linger": "kafka.linger",
	} {
		if got := nearest(name, keys); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
