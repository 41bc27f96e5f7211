package replication

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Breaks it catches: a batch, and so a request, for each message of a small transaction; one that waits without bound
// for an end that does not come, or for that of a large one, which may not fit into memory.
func TestSmallTransactionsAreHandedOverWhole(t *testing.T) {
	for name, test := range map[string]struct {
		kinds string
		size  int
		every time.Duration // see Config.ReadInterval
		want  int           // messages in the batch
		took  time.Duration // at most; the writer stops then
	}{
		"one row":                   {"BIC", 100, 0, 3, 0},
		"50 rows":                   {"B" + strings.Repeat("I", 50) + "C", 100, 0, 52, 0},
		"an end that does not come": {"BIII", 100, 0, 4, wholeWait},
		"a large one":               {"BIIII", wholeBytes / 3, 0, 3, 0},
		"no transaction":            {"M", 100, 0, 1, 0},
		"with a read interval":      {"BIC", 100, time.Second, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, peer := net.Pipe()
				defer conn.Close()
				defer peer.Close()
				socket := newSocket(conn)
				socket.stream(conn, nil, test.every)
				s := &Session{c: Config{StatusInterval: time.Minute, ReadInterval: test.every}, link: &link{net: socket}}
				s.frames.src = socket
				go func() {
					for _, kind := range test.kinds {
						if _, err := peer.Write(walData(string(kind) + strings.Repeat("x", test.size-1))); err != nil {
							return
						}
					}
				}()
				began := time.Now()
				if err := s.receive(t.Context(), conn, func() outbox.LSN { return 0 }); err != nil {
					t.Fatal(err)
				}
				if got := len(s.pending.Messages); got != test.want {
					t.Errorf("got a batch of %d messages, want %d", got, test.want)
				}
				if took := time.Since(began); took > test.took {
					t.Errorf("handed over after %v, want at most %v", took, test.took)
				}
			})
		})
	}
}
