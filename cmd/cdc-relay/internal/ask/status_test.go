package ask

import "testing"

// Seen to fail with an empty host left empty.
func TestReachableTurnsAllAddressesIntoThisMachine(t *testing.T) {
	for listen, want := range map[string]string{":9464": "localhost:9464", "0.0.0.0:1": "localhost:1",
		"[::]:1": "localhost:1", "127.0.0.1:9464": "127.0.0.1:9464", "host:1": "host:1"} {
		if got := Reachable(listen); got != want {
			t.Errorf("%s: got %s, want %s", listen, got, want)
		}
	}
}
