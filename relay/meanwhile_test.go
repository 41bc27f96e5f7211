package relay_test

import (
	"context"
	"testing"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// late is a Postgres that gives a relay its stream when it is told to.
type late struct {
	relay.RealPostgres
	stream chan struct{}
}

func (l *late) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	select {
	case <-l.stream:
		return l.RealPostgres.OpenStream(ctx, c)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A relay makes the slot, and another one streams from it before the first one does. Break it catches: the first one takes the
// other's state for that of a slot that is gone, and begins again from the table: what the application has deleted from
// there, and only the stream has, then comes behind what followed it. Seen to fail with the look for it at the grant.
func TestSlotThatAnotherOneHadMeanwhileIsStreamed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	l := &late{stream: make(chan struct{})}
	b.postgres = l
	_, stopFirst := b.start()
	b.waitQuery("the first one makes the slot", "SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+b.c.Postgres.Slot+"'", "1")
	b.postgres = nil
	_, stopSecond := b.start()
	b.pg.Exec(t, many(1, 3, 1))
	b.waitRecorded(3)
	mustStop(t, stopSecond)
	b.pg.Exec(t, many(4, 1, 1))
	b.pg.Exec(t, `DELETE FROM outbox_events WHERE payload = '{"n": 4}'`)
	b.pg.Exec(t, many(5, 1, 1))
	close(l.stream)
	b.waitRecorded(5)
	b.wantNumbers("outbox.event.order", 5)
	mustStop(t, stopFirst)
}
