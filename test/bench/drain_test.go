package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// The first marks.
var (
	drainMark  = mark{atLeast: 0.5}
	memoryMark = mark{atMost: 96} // MiB
)

func (st *stage) drains(t *testing.T, r *result, d drain) {
	turn := 0
	what := fmt.Sprintf("%d events, %d rows in a transaction, %v", d.events, d.perTransaction, st.shape)
	once := st.drainOnce
	if st.parkedKeys > 0 || st.journal > 0 {
		once = st.drainBeside
	}
	switch st.spool {
	case "":
	case drainSizes:
		once = st.drainSizes
	default:
		once = st.drainSpool
	}
	if st.journal > 0 {
		st.filled = st.fillJournal(t)
	}
	st.repeat(t, r, d.name, what, func(t *testing.T) []sample {
		turn++
		return st.inTurns(t, turn, func(t *testing.T, v variant) []sample { return once(t, v, d, turn) })
	})
}

// drainOnce fills a slot once and empties three copies of it: by pg_recvlogical, by a bare loop and by the relay. Who
// begins changes from turn to turn.
func (st *stage) drainOnce(t *testing.T, v variant, d drain, turn int) []sample {
	r := st.newRun(t, v)
	r.patience += time.Duration(d.events) * 100 * time.Microsecond
	if r.parkedKeys > 0 {
		r.park(r.parkedKeys)
	}
	r.relay.Stop(t)
	var clean bool
	r.one("SELECT phase = 'stream' AND NOT dirty FROM cdc_relay_state", &clean)
	if !clean {
		t.Fatal("the relay did not stop clean: its next start would look every event up")
	}
	r.load(d)
	r.exec("SELECT pg_copy_logical_replication_slot($1, 'floor_c', false)", r.slot())
	r.exec("SELECT pg_copy_logical_replication_slot($1, 'floor_go', false)", r.slot())
	r.exec("SELECT pg_logical_emit_message(false, 'bench', 'the end of the events')")
	end := r.walEnd()
	r.exec("SELECT pg_logical_emit_message(false, 'bench', 'WAL beyond the end')")

	var c, loop floor
	floors := func() {
		r.exec("CHECKPOINT")
		c = r.recvlogicalFloor("floor_c", end)
		r.exec("CHECKPOINT")
		loop = r.goFloor("floor_go", end, d.events)
	}
	if turn%2 == 1 {
		floors()
	}
	relayed := r.drainByRelay(d, end)
	if turn%2 == 0 {
		floors()
	}
	return drainSamples(d, c, loop, relayed)
}

// relayed is the relay's result.
type relayed struct {
	start, first, last  time.Time // of the process; of the records, by the broker's clock
	connected           time.Time // its walsender's start, by Postgres's clock: just before its stream's
	confirmed, mirrored time.Time // the slot is past the last event; every row is marked
	atStart, atJournal  cost      // at the start of the process and when everything was journaled
	atEnd               cost      // when everything was mirrored, too
	rss                 int64     // peak, bytes
	// when everything was journaled: WAL that was written and not confirmed; of it, up to the last event; bytes
	slotLag, eventLag int64
	ahead             int // most records that were in the topic and, as far as the relay had said, not journaled

	// Means over the drain, by the relay's own metrics.
	batch, journal float64       // events in a Kafka batch, in a journal transaction
	commit         time.Duration // a journal transaction's
}

// drainByRelay lets the relay empty its slot, and fails if anything is not as it should be then.
func (r *run) drainByRelay(d drain, end uint64) relayed {
	r.t.Helper()
	r.exec("CHECKPOINT")
	var x relayed
	x.atStart = r.cost()
	r.relay.Start(r.t)
	x.start = time.Now()
	stopProfiles := r.profile(d.name)
	var steps []step
	r.poll(20*time.Millisecond, "everything is journaled", func() bool {
		steps = append(steps, step{time.Now(), r.settled()})
		return steps[len(steps)-1].settled >= d.events
	})
	r.one(`SELECT backend_start FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid
		WHERE slot_name = $1`, &x.connected, r.slot())
	x.slotLag, x.eventLag = r.slotLag(end)
	x.atJournal = r.cost()
	stopProfiles()
	x.confirmed = r.poll(20*time.Millisecond, "the slot is past the events", func() bool {
		var past bool
		r.one("SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", &past, r.slot(),
			outbox.LSN(end).String())
		return past
	})
	x.mirrored = x.atJournal.at
	if r.afterPublish != "keep" {
		x.mirrored = r.poll(100*time.Millisecond, "every row is marked", r.mirrored)
	}
	x.atEnd = r.cost()
	x.rss = r.relay.PeakRSS(r.t)
	x.batch, x.journal = r.mean("kafka_produce_batch_records"), r.mean("outbox_settle_batch_size")
	x.commit = time.Duration(r.mean("outbox_settle_seconds") * float64(time.Second))
	r.relay.Stop(r.t)
	times := r.judge()
	x.first, x.last, x.ahead = times[0], times[len(times)-1], mostAhead(times, steps)
	if r.afterPublish != "keep" {
		asTheyWere := "SELECT count(*) FROM outbox_events WHERE aggregate_type <> '" + refusedType + "'"
		if r.afterPublish == "mark" {
			asTheyWere += " AND published_at IS NULL"
		}
		var left int
		r.one(asTheyWere, &left)
		if left != 0 {
			r.t.Fatalf("the run was wrong: after_publish is %s, and %d rows are as they were", r.afterPublish, left)
		}
	}
	if got := r.parked(); got != r.parkedKeys {
		r.t.Fatalf("the run was wrong: %d keys are parked, want %d", got, r.parkedKeys)
	}
	return x
}

// slotLag is how much WAL was written and is not confirmed, and how much of it is not beyond end, in bytes.
func (r *run) slotLag(end uint64) (all, upToEnd int64) {
	r.t.Helper()
	err := r.conn.QueryRow(r.t.Context(),
		`SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint,
 greatest(pg_wal_lsn_diff($2::pg_lsn, confirmed_flush_lsn), 0)::bigint
		FROM pg_replication_slots WHERE slot_name = $1`, r.slot(), outbox.LSN(end).String()).Scan(&all, &upToEnd)
	if err != nil {
		r.t.Fatalf("read the slot's lag: %v", err)
	}
	return all, upToEnd
}

// step is the number of settled events at a time.
type step struct {
	at      time.Time
	settled int
}

// mostAhead is by how many the records of the topic, whose times are given in their order, were ahead of what was
// settled.
func mostAhead(times []time.Time, steps []step) (most int) {
	for _, s := range steps {
		sent, _ := slices.BinarySearchFunc(times, s.at, time.Time.Compare)
		most = max(most, sent-s.settled)
	}
	return most
}

// mirrored reports whether every journaled row is marked, or deleted.
func (r *run) mirrored() bool {
	r.t.Helper()
	var left int
	r.one("SELECT count(*) FROM cdc_relay_journal_batch WHERE NOT mirrored", &left)
	return left == 0
}

// mean is the mean of a histogram of the relay, 0 when it is empty.
func (r *run) mean(metric string) float64 {
	r.t.Helper()
	count := r.relay.Metric(r.t, metric+"_count")
	if count == 0 {
		return 0
	}
	return r.relay.Metric(r.t, metric+"_sum") / count
}

// Figures of a drain that are looked at elsewhere.
const (
	relayRate     = "relay, events/s, first to last record"
	journaledRate = "relay, events/s, start of the process to everything journaled"
	clientFloor   = "floor pg_recvlogical, events/s"
	loopFloor     = "floor bare Go loop, events/s"
	walJournaled  = "WAL written until journaled, bytes per event"
)

func drainSamples(d drain, c, loop floor, x relayed) []sample {
	rate := func(took time.Duration) float64 { return float64(d.events) / took.Seconds() }
	used := x.atJournal.since(x.atStart)
	whole := x.atEnd.since(x.atStart)
	none := mark{}
	memory := none
	if d.name == drainOneTx {
		memory = memoryMark
	}
	return []sample{
		{relayRate, rate(x.last.Sub(x.first)), none},
		{journaledRate, rate(x.atJournal.at.Sub(x.start)), none},
		{clientFloor, rate(c.took), none},
		{loopFloor, rate(loop.took), none},
		{"relay / pg_recvlogical", c.took.Seconds() / x.last.Sub(x.first).Seconds(), drainMark},
		{"relay / pg_recvlogical, both from their stream's start",
			c.took.Seconds() / x.last.Sub(x.connected).Seconds(), none},
		{"relay, start of the process to first record, ms", milliseconds(x.first.Sub(x.start)), none},
		{"relay, last record to everything journaled, ms", milliseconds(x.atJournal.at.Sub(x.last)), none},
		{"relay, last record to the slot past it, ms", milliseconds(x.confirmed.Sub(x.last)), none},
		{"relay, slot lag when everything is journaled, bytes", float64(x.slotLag), none},
		{"  of these up to the last event", float64(x.eventLag), none},
		{"relay, most records in the topic and not yet journaled", float64(x.ahead), none},
		{"relay, last record to every row marked, ms", milliseconds(x.mirrored.Sub(x.last)), none},
		{"relay, CPU s per million, until journaled", perMillion(used.relay, d.events), none},
		{"relay, CPU s per million, until marked", perMillion(whole.relay, d.events), none},
		{"Postgres, CPU s per million, until journaled", perMillion(used.postgres.total, d.events), none},
		{"  of these walsender", perMillion(used.postgres.walsenders(), d.events), none},
		{"  of these sessions (journal, mirror)", perMillion(used.postgres.sessions(), d.events), none},
		{"Postgres, CPU s per million, until marked", perMillion(whole.postgres.total, d.events), none},
		{"Postgres, CPU s per million, pg_recvlogical", perMillion(c.postgres, d.events), none},
		{"Kafka, CPU s per million", perMillion(used.kafka, d.events), none},
		{"pg_recvlogical, CPU s per million", perMillion(c.client, d.events), none},
		{"bare Go loop, CPU s per million", perMillion(loop.client, d.events), none},
		{"relay, peak RSS, MiB", float64(x.rss) / (1 << 20), memory},
		{"relay, mean events in a Kafka batch", x.batch, none},
		{"relay, mean events in a journal transaction", x.journal, none},
		{"relay, mean duration of a journal transaction, ms", milliseconds(x.commit), none},
		{walJournaled, float64(used.wal) / float64(d.events), none},
		{"WAL written until marked, bytes per event", float64(whole.wal) / float64(d.events), none},
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Breaks it catches: a figure that misses how far the journal was behind. Seen to fail with the records counted at the
// end.
func TestMostAheadIsTheLargestGapOfTheSteps(t *testing.T) {
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	times := []time.Time{second(1), second(2), second(3), second(4), second(5)}
	for _, c := range []struct {
		steps []step
		want  int
	}{
		{nil, 0},
		{[]step{{second(0), 0}, {second(9), 5}}, 0},
		{[]step{{second(2), 0}, {second(4), 0}, {second(6), 4}}, 3}, // what came at that very second is not counted
	} {
		if got := mostAhead(times, c.steps); got != c.want {
			t.Errorf("steps %v: got %d, want %d", c.steps, got, c.want)
		}
	}
}
