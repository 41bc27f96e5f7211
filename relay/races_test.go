package relay_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// late is a Postgres whose answers to a relay, that its slot is made or granted, come when they are told to.
type late struct {
	relay.RealPostgres
	made, granted chan struct{}
}

func (l *late) CreateSlot(ctx context.Context, c replication.Config) (outbox.LSN, error) {
	at, err := l.RealPostgres.CreateSlot(ctx, c)
	return at, errors.Join(err, await(ctx, l.made))
}

func (l *late) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	if err := await(ctx, l.granted); err != nil {
		return nil, err
	}
	return l.RealPostgres.OpenStream(ctx, c)
}

func await(ctx context.Context, open chan struct{}) error {
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A relay makes the slot, and another one streams from it before the first one knows, or does. Break it catches: the
// first one takes the other's state for that of a slot that is gone, and begins again from the table: what the
// application has deleted from there, and only the stream has, then comes behind what followed it. Seen to fail with
// the state looked at when the slot is granted, and with the position of the take-over not looked at.
func TestSlotThatAnotherOneHadMeanwhileIsStreamed(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	close(open)
	for name, slow := range map[string]func() (l *late, goOn func()){
		"before it is known to be made": func() (*late, func()) {
			l := &late{made: make(chan struct{}), granted: open}
			return l, func() { close(l.made) }
		},
		"before it is granted": func() (*late, func()) {
			l := &late{made: open, granted: make(chan struct{})}
			return l, func() { close(l.granted) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			l, goOn := slow()
			b.postgres = l
			_, stopFirst := b.start()
			b.waitQuery("the first one makes the slot",
				"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '"+b.c.Postgres.Slot+"' AND NOT active", "1")
			b.postgres = nil
			_, stopSecond := b.start()
			b.pg.Exec(t, many(1, 3, 1))
			b.waitRecorded(3)
			mustStop(t, stopSecond)
			b.pg.Exec(t, many(4, 1, 1))
			b.pg.Exec(t, `DELETE FROM outbox_events WHERE payload = '{"n": 4}'`)
			b.pg.Exec(t, many(5, 1, 1))
			goOn()
			b.waitRecorded(5)
			b.wantNumbers("outbox.event.order", 5)
			mustStop(t, stopFirst)
		})
	}
}

// A relay dies in a catch-up, the slot is dropped, and the relay that recreates it dies before it knows. Break it
// catches: the next one takes the old list of rows for the new slot's, so that what was committed in between comes
// late, behind what followed it. Seen to fail with the position of the take-over not looked at.
func TestListOfASlotThatIsGoneIsReadAnew(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	_, stop := b.start()
	b.pg.Exec(t, many(1, 3, 1))
	b.waitRecorded(3)
	mustStop(t, stop)
	b.pg.Exec(t, `UPDATE cdc_relay_state SET phase = 'catch_up', catch_up_ready = true, dirty = true`)
	b.waitFree()
	b.pg.Exec(t, `SELECT pg_drop_replication_slot('`+b.c.Postgres.Slot+`')`)
	b.pg.Exec(t, many(4, 3, 1))
	b.pg.Exec(t, `SELECT pg_create_logical_replication_slot('`+b.c.Postgres.Slot+`', 'pgoutput')`)
	b.pg.Exec(t, many(7, 1, 1))
	_, stop = b.start()
	b.waitRecorded(7)
	b.wantNumbers("outbox.event.order", 7)
	mustStop(t, stop)
}
