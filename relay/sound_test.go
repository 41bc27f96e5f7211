package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// deaf is a Postgres whose slot is older than the publication, so that it ends each stream, as soon as the relay has
// taken over, with the reason behind what was not read; as a server of real size does while a start is at its
// catch-up. A new slot cures it.
type deaf struct {
	relay.RealPostgres
	b     *bed
	cured atomic.Bool
}

func (d *deaf) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	s, err := replication.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	if d.cured.Load() {
		return s, nil
	}
	return &unread{Session: s, d: d, epoch: d.epoch(ctx), batches: make(chan *replication.Batch)}, nil
}

func (d *deaf) CreateSlot(ctx context.Context, c replication.Config) (outbox.LSN, error) {
	d.cured.Store(true)
	return replication.CreateSlot(ctx, c)
}

func (d *deaf) epoch(ctx context.Context) string {
	epoch, err := d.b.pg.TryQuery(ctx, "SELECT epoch FROM cdc_relay_epoch")
	if err != nil {
		return "unknown"
	}
	return epoch
}

// unread is a stream that tells nothing of its end before it is read.
type unread struct {
	*replication.Session
	d       *deaf
	epoch   string // when the slot was granted
	batches chan *replication.Batch
}

func (u *unread) Batches() <-chan *replication.Batch { return u.batches }

func (u *unread) Run(ctx context.Context, _ func() outbox.LSN) error {
	defer close(u.batches)
	ended := false
	defer func() {
		if !ended {
			u.Close()
		}
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case u.batches <- new(replication.Batch):
			return &replication.PublicationMissingError{Publication: u.d.b.c.Postgres.Publication, Said: "it is younger"}
		case <-tick.C:
			if epoch := u.d.epoch(ctx); !ended && epoch != u.epoch && epoch != "unknown" {
				u.Close()
				ended = true
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The server ends each stream permanently, the reason stands behind what a start does not read before its catch-up, and
// the catch-up waits for a transaction. Break it catches: two relays that take the slot from each other
// forever, and never learn why they lose it. Seen to fail with no session that reads first.
func TestTwoRelaysLearnWhyTheirStreamEndsUnread(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	mustStop(t, stop)
	b.pg.Exec(t, many(6, 5, 3))
	b.pg.Exec(t, "ALTER PUBLICATION "+b.c.Postgres.Publication+" DROP TABLE outbox_events")
	r, stop = b.start()
	b.waitHalt(r, relay.HaltPublication, "not in it") // from now on the table comes first
	mustStop(t, stop)
	conn := b.pg.Connect(t)
	if _, err := conn.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	b.pg.Exec(t, "ALTER PUBLICATION "+b.c.Postgres.Publication+" ADD TABLE outbox_events")
	b.postgres = &deaf{b: b}
	one, _ := b.start()
	other, _ := b.start()
	harness.Eventually(t, time.Minute, "one of the two begins again with a new slot", func(context.Context) string {
		if metric(t, one, "cdc_slot_recreations_total")+metric(t, other, "cdc_slot_recreations_total") == 0 {
			return "not yet"
		}
		return ""
	})
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	b.pg.Exec(t, many(11, 5, 3))
	b.waitRecorded(15)
	b.wantNumbers("outbox.event.order", 15)
}
