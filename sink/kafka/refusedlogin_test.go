package kafka

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

// Breaks when a password that is refused is tried again and again: brokers lock users out for that. Seen to fail with
// pauses that do not grow.
func TestRefusedLoginsAreFew(t *testing.T) {
	file := secretFile(t, "secret")
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		d, err := New(Config{
			Brokers: []string{"a:1"}, SASL: alice(connect.ScramSHA256, file),
			Dial: func(context.Context, string, string) (net.Conn, error) {
				dials.Add(1)
				near, far := net.Pipe()
				go func() {
					_, _ = far.Read(make([]byte, 1024))
					_, _ = far.Write([]byte{21, 3, 1, 0, 2}) // a TLS alert, which no one can log in against
					far.Close()
				}()
				return near, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		_, _ = d.Partitions("t")
		time.Sleep(time.Minute)
		if _, err := d.Partitions("t"); TroubleOf(err) != sink.ConfigurationTrouble {
			t.Errorf("trouble: got %v, want that of the configuration", err)
		}
		if got := dials.Load(); got < 10 || got > 20 {
			t.Errorf("logins in a minute: got %d, want one in 5 s and a few at first", got)
		}
	})
}
