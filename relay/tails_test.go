package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// forgetful is a broker whose topics cannot be read back for a while.
type forgetful struct {
	*judgeful
	asked atomic.Int64
	tail  atomic.Pointer[error] // what Tail says
}

func (f *forgetful) Tail(context.Context, sink.TailQuery, func(sink.TailRecord) error) error {
	f.asked.Add(1)
	return *f.tail.Load()
}

func (f *forgetful) says(err error) { f.tail.Store(&err) }

// A start after a crash finds no broker, or partitions without a leader. Breaks it catches: a relay that does not wait
// until it has read the topics back, and then sends twice what the crash left unrecorded; one that waits for what no
// waiting fixes. Seen to fail with the first error taken for the last.
func TestUncleanStartWaitsUntilTheTopicsCanBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first error
		waits bool
	}{
		{"no broker", fmt.Errorf("dial: %w", sink.ErrUnreachable), true},
		{"no leader", fmt.Errorf("partition 1: %w", sink.ErrPassing), true},
		{"forbidden", errors.New("not authorized"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			j := newJudgeful(func([]byte, int) *sink.Reason { return nil })
			f := &forgetful{judgeful: j}
			f.says(nil)
			r, stop := b.startWith(f)
			b.waitRole(r, relay.RoleActive)
			b.pg.Exec(t, many(1, 10, 3))
			b.waitRecorded(10)
			mustStop(t, stop)
			b.pg.Exec(t, "UPDATE cdc_relay_state SET dirty = true") // as a crash leaves it
			b.pg.Exec(t, many(11, 5, 3))

			again := newJudgeful(func([]byte, int) *sink.Reason { return nil })
			f = &forgetful{judgeful: again}
			f.says(c.first)
			_, stop = b.startWith(f)
			if c.waits {
				harness.Eventually(t, 30*time.Second, "the topic is asked for again and again", func(context.Context) string {
					if n := f.asked.Load(); n < 4 {
						return fmt.Sprintf("%d times", n)
					}
					return ""
				})
				if n := len(again.Log("outbox.event.order")); n != 0 {
					t.Errorf("sent before the topic was read: got %d records, want none", n)
				}
				f.says(nil)
			}
			b.waitRecorded(15)
			if n := f.asked.Load(); !c.waits && n != 1 {
				t.Errorf("an answer that no waiting changes: the topic was asked for %d times, want once", n)
			}
			mustStop(t, stop)
		})
	}
}
