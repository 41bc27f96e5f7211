package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// dialed is a Postgres that counts the connections made ahead, and what became of them.
type dialed struct {
	relay.RealPostgres
	ahead, slots atomic.Int64 // connections, and looks at the slot
	used         atomic.Int64 // streams that were given one
}

func (d *dialed) Dial(ctx context.Context, c replication.Config) *replication.Ahead {
	d.ahead.Add(1)
	return d.RealPostgres.Dial(ctx, c)
}

func (d *dialed) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	if c.Ahead != nil {
		d.used.Add(1)
	}
	return d.RealPostgres.OpenStream(ctx, c)
}

func (d *dialed) OpenTables(ctx context.Context, c store.Config) (relay.Tables, error) {
	tables, err := d.RealPostgres.OpenTables(ctx, c)
	return looked{tables, d}, err
}

type looked struct {
	relay.Tables
	d *dialed
}

func (l looked) Slot(ctx context.Context) (store.SlotStatus, error) {
	l.d.slots.Add(1)
	return l.Tables.Slot(ctx)
}

// A start connects for its stream while it still looks at the tables, if the slot is there and nobody streams from it.
// Breaks it catches: a start that waits for the connection; one that makes it where there is no slot, which may need
// the server's last walsender to make one; a standby that connects at each look. Seen to fail with each of the three
// conditions left out.
func TestAStartConnectsAheadWhereTheSlotIsFree(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	first, second, standby := &dialed{}, &dialed{}, &dialed{}
	b.postgres = first
	_, stop := b.start()
	b.pg.Exec(t, many(1, 3, 1))
	b.waitRecorded(3)
	mustStop(t, stop)
	if got := first.ahead.Load(); got != 0 {
		t.Errorf("a first start: got %d connections ahead, want none", got)
	}

	b.postgres = second
	_, stop = b.start()
	b.pg.Exec(t, many(4, 3, 1))
	b.waitRecorded(6)
	if ahead, used := second.ahead.Load(), second.used.Load(); ahead != 1 || used != 1 {
		t.Errorf("a start on a slot: got %d connections ahead and %d streams on one, want one of each", ahead, used)
	}

	b.postgres = standby
	_, stopStandby := b.start()
	harness.Eventually(t, bedPatience, "the standby looks at the slot", func(context.Context) string {
		if n := standby.slots.Load(); n < 5 {
			return fmt.Sprintf("%d looks", n)
		}
		return ""
	})
	if got := standby.ahead.Load(); got != 0 {
		t.Errorf("a standby: got %d connections ahead, want none", got)
	}
	mustStop(t, stop)
	b.pg.Exec(t, many(7, 3, 1))
	b.waitRecorded(9)
	mustStop(t, stopStandby)
	b.wantNumbers("outbox.event.order", 9)
}
