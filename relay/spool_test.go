package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// filled are statements for events like many's, of a kilobyte each.
func filled(from, n, keys int) string {
	return fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k' || i %% %d, 'made', jsonb_build_object('n', i, 'filler', repeat(md5(i::text), 32))
			FROM generate_series(%d, %d) i;`, keys, from, from+n-1)
}

// spooling is a bed whose broker is away, and whose relay spools after four seconds of that.
func spooling(t *testing.T) (b *bed, back func()) {
	t.Helper()
	b = newBed(t)
	port := b.broker.Port()
	b.broker.Close()
	b.c.WAL.Budget = 1 << 20
	b.c.Postgres.WALSenderTimeout = config.Duration(4 * time.Second)
	b.c.Postgres.StatusInterval = config.Duration(200 * time.Millisecond)
	b.c.ShutdownGrace = config.Duration(50 * time.Millisecond)
	return b, func() {
		var err error
		if b.broker, err = embedded.StartFakeKafka(embedded.FakeKafkaConfig{Port: port,
			Topics: map[string]int32{"outbox.event.order": 12}}); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bed) waitSpooled(n int) {
	b.t.Helper()
	b.waitQuery("spooled events", "SELECT coalesce(sum(events), 0) FROM cdc_relay_spool", fmt.Sprint(n))
}

// waitConfirmedPast waits until the slot does not keep the WAL before the position.
func (b *bed) waitConfirmedPast(position string) {
	b.t.Helper()
	b.waitQuery("confirmed", fmt.Sprintf("SELECT confirmed_flush_lsn >= '%s' FROM pg_replication_slots "+
		"WHERE slot_name = '%s'", position, b.c.Postgres.Slot), "true")
}

// The broker is away from the start, a window is full, rows go in the transaction that made them, a process ends in the
// middle, the next one finds a spool, and a transaction has several rows of it. Breaks it catches: an event that is
// spooled and confirmed, and not sent, or twice, or out of order; a start in an outage that waits for the broker before
// it spools; rows that stay in the spool; a reconciler that takes what is spooled for missed.
func TestOutageIsSpooledAndSentInOrder(t *testing.T) {
	t.Parallel()
	b, back := spooling(t)
	b.c.Limits.InFlightEvents = 500
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, filled(1, 3000, 7))
	position := b.here()
	b.waitSpooled(3000)
	b.waitConfirmedPast(position)
	b.pg.Exec(t, "BEGIN; "+filled(3001, 100, 7)+" DELETE FROM outbox_events WHERE (payload->>'n')::int > 3000; COMMIT")
	b.waitSpooled(3100)
	mustRunOut(t, stop)
	b.waitFree()

	b.pg.Exec(t, filled(3101, 100, 7))
	r, stop = b.start()
	b.pg.Exec(t, filled(3201, 8000, 7))
	b.pg.Exec(t, "DELETE FROM outbox_events WHERE (payload->>'n')::int > 11000")
	position = b.here()
	b.waitSpooled(11200)
	b.waitConfirmedPast(position)
	if got := b.pg.Query(t, "SELECT count(*) > 1 FROM cdc_relay_spool WHERE ends = 0"); got != "true" {
		t.Error("a transaction of 8 MB: got one row of the spool for it, want several")
	}

	back()
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(11200)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	b.pg.Exec(t, many(11201, 10, 7))
	b.waitRecorded(11210)
	b.pg.WaitConfirmed(t, b.c.Postgres.Slot, bedPatience)
	report, err := r.Reconcile(t.Context())
	if err != nil || report.Missed != 0 {
		t.Errorf("reconcile: got %d missed rows, %v; want none", report.Missed, err)
	}
	b.c.ShutdownGrace = config.Duration(time.Minute)
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 11210)
}

// A relay that is paused does not read its stream. Break it catches: a pause that keeps WAL whatever the budget; one
// that ends because events are spooled.
func TestPauseIsSpooled(t *testing.T) {
	t.Parallel()
	b, back := spooling(t)
	back()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	b.waitExecuted(b.ask(store.RequestPause, store.Filter{}))
	b.pg.Exec(t, filled(11, 2000, 3))
	position := b.here()
	b.waitSpooled(2000)
	b.waitConfirmedPast(position)
	dry, err := relay.AuditDry(t.Context(), b.asker(), 3*time.Second)
	if want := (relay.DryReport{Unrecorded: 2000, Streaming: true, Spooled: 2000}); err != nil || dry != want {
		t.Errorf("a dry look in a pause: got %+v, %v, want %+v", dry, err, want)
	}
	if got := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); got != "10" {
		t.Errorf("journaled in a pause: got %s events, want the 10 from before it", got)
	}
	b.waitExecuted(b.ask(store.RequestResume, store.Filter{}))
	b.waitRecorded(2010)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 2010)
}

// A process is killed in an outage before anything is spooled; the next one has topics to read back, for which it
// waits. Break it catches: a spool that is left as if events flowed, because none is in flight.
func TestStartInAnOutageIsSpooled(t *testing.T) {
	t.Parallel()
	b, back := spooling(t)
	back()
	budget := b.c.WAL.Budget
	b.c.WAL.Budget = 0
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	b.broker.Close()
	b.pg.Exec(t, many(11, 10, 3))
	b.waitReceived(r, 20)
	mustRunOut(t, stop)
	b.waitFree()

	b.c.WAL.Budget = budget
	b.pg.Exec(t, filled(21, 2000, 3))
	r, stop = b.start()
	for from := 2021; from < 2621; from += 200 { // what is committed while it is spooled, too
		position := b.here()
		b.waitConfirmedPast(position)
		b.pg.Exec(t, filled(from, 200, 3))
	}
	b.waitQuery("spooled events", "SELECT sum(events) >= 2600 FROM cdc_relay_spool", "true")
	if n := metric(t, r, "cdc_stream_restarts_total", "reason=spool"); n != 1 {
		t.Errorf("sessions that ended so that the next one spools: got %v, want 1", n)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The records of a relay are adopted for a table that was made again, while events are spooled whose rows the new table
// does not have. Break it catches: these events taken for another table's.
func TestSpoolOfAnAdoptedTableIsSent(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b, back := spooling(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, filled(1, 2000, 3))
	b.waitSpooled(2000)
	mustRunOut(t, stop)
	b.waitFree()
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME TO former; CREATE TABLE outbox_events (LIKE former INCLUDING ALL); "+
		"ALTER PUBLICATION "+b.c.Postgres.Publication+" SET TABLE outbox_events")
	b.dropSlot()
	s := b.asker()
	state, err := s.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		moved, err := s.Adopt(t.Context(), store.Home{SystemID: state.SystemID, Timeline: state.Timeline, Dry: dry})
		if err != nil || moved.Spooled != 2000 {
			t.Fatalf("adopt: got %d spooled events, %v; want 2000", moved.Spooled, err)
		}
	}
	back()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(2000)
	b.pg.Exec(t, many(2001, 10, 3))
	b.waitRecorded(2010)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 2010)
}

// Events are parked when an outage begins, and later ones of their keys are spooled. Break it catches: one that leaves
// the spool before those that are parked in front of it.
func TestSpoolIsSentBehindParkedEvents(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b, back := spooling(t)
	back()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.commit("absent", 1, 20, 3)
	b.waitQuery("parked", "SELECT count(*) FROM cdc_relay_parked", "20")
	b.broker.Close()
	b.pg.Exec(t, filled(21, 1000, 3))
	b.commit("absent", 1021, 1100, 3)
	b.pg.Exec(t, filled(1101, 1000, 3))
	b.waitSpooled(2080)
	back()
	b.waitQuery("journaled", "SELECT count(*) >= 2000 FROM cdc_relay_journal", "true")
	b.createTopic("outbox.event.absent", 4)
	b.commit("absent", 2101, 2120, 3)
	b.wantAll(2120, "outbox.event.absent", "outbox.event.order")
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
}

// Nothing is read while dead letters wait for a person. Break it catches: an open breaker that keeps WAL whatever the
// budget, or that the new session forgets.
func TestOpenBreakerIsSpooled(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b, back := spooling(t)
	back()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	b.c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: 5, Ratio: 0, Window: config.Duration(time.Minute)}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.flood(60)
	b.waitHalt(r, relay.HaltFlood)
	b.pg.Exec(t, filled(1, 2000, 3))
	position := b.here()
	b.waitSpooled(2060)
	b.waitConfirmedPast(position)
	b.staysDead(5)
	b.resumeThrough(r, 60)
	b.waitRecorded(2000)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 2000)
}

// A transaction has many rows of the spool, and a process ends when it has stored and sent a part of it. Breaks it
// catches: a part that is taken for the whole; a spool that cannot be opened, or emptied, in the time that a statement
// has.
func TestSpoolTakesALargeTransaction(t *testing.T) {
	n := harness.Count(t, "rows of a spooled transaction")
	if n == 0 {
		t.Skip("not in CI")
	}
	b, back := spooling(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, filled(1, 2000, 7)) // has the relay spool
	b.waitSpooled(2000)
	b.pg.Exec(t, many(2001, n, 7))
	b.waitQuery("a part is stored", "SELECT count(*) > 3 FROM cdc_relay_spool WHERE ends = 0", "true")
	mustRunOut(t, stop)
	b.waitFree()
	_, stop = b.start()
	b.waitSpooled(2000 + n)
	if err := stop(); err != nil {
		t.Error(err)
	}
	b.waitFree()
	back()
	b.c.ShutdownGrace = config.Duration(50 * time.Millisecond)
	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitQuery("a part is sent", "SELECT count(*) > 2000 FROM cdc_relay_journal", "true")
	mustRunOut(t, stop)
	b.waitFree()
	b.c.ShutdownGrace = config.Duration(time.Minute)
	_, stop = b.start()
	b.waitRecorded(2000 + n)
	b.waitQuery("rows of the spool", "SELECT count(*) FROM cdc_relay_spool", "0")
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 2000+n)
}
