package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/spool"
)

// spoolSizes are how many times the events of a drain are spooled.
var spoolSizes = []int{1, 10, 100}

// drainSizes restarts the relay with spools of several sizes, and drains the first part of each. Which comes first
// changes from turn to turn.
func (st *stage) drainSizes(t *testing.T, v variant, d drain, turn int) (all []sample) {
	sizes := slices.Clone(spoolSizes)
	if turn%2 == 0 {
		slices.Reverse(sizes)
	}
	of := map[int][]sample{}
	for _, size := range sizes {
		if !t.Run(fmt.Sprintf("%dx", size), func(t *testing.T) { of[size] = st.drainOfSize(t, v, d, size) }) {
			t.FailNow()
		}
	}
	for _, size := range spoolSizes {
		for _, s := range of[size] {
			all = append(all, sample{fmt.Sprintf("%d spooled: %s", size*d.events, s.name), s.value, s.mark})
		}
	}
	return all
}

// drainOfSize has the relay spool all events of a slot, adds copies of the rows behind them, and drains most of what
// the relay spooled. Then the copies are deleted, so that the rest can be sent and all of it be judged: none of them
// is ever read.
func (st *stage) drainOfSize(t *testing.T, v variant, d drain, size int) (samples []sample) {
	r := st.newRun(t, v)
	r.patience += time.Duration(size*d.events) * 100 * time.Microsecond
	r.command("pause")
	r.relay.Stop(t)
	r.load(d)
	r.relay.Start(t)
	r.poll(100*time.Millisecond, "all is stored", func() bool { return r.spooled() == d.events })
	r.relay.Stop(t)
	rows := r.transactionEach()
	r.copySpool(rows, size)
	r.readAway()
	r.exec("VACUUM ANALYZE cdc_relay_spool")
	r.exec("CHECKPOINT")

	add := func(name string, value float64) { samples = append(samples, sample{name, value, mark{}}) }
	total := size * d.events
	var table, toast, keys float64
	r.one("SELECT pg_total_relation_size('cdc_relay_spool')", &table)
	r.one("SELECT pg_relation_size('cdc_relay_spool')", &toast)
	r.one("SELECT pg_indexes_size('cdc_relay_spool')", &keys)
	add("the table, bytes per event", table/float64(total))
	add("  of these its main part and that index", (toast+keys)/float64(total))
	add("start of the process to what is spooled known, ms", r.startedWith(total))
	var last string
	r.one("SELECT id::text FROM outbox_events ORDER BY seq DESC LIMIT 1", &last)
	add("cdc-relay status, ms", r.timed("status"))
	add("cdc-relay find, ms", r.timed("find", last))
	add("cdc-relay check, ms", r.timed("check"))
	began, drained := r.drainMost(d.events * 9 / 10)
	for _, s := range drained {
		add(s.name, s.value)
	}
	for _, s := range r.deleteByHand(d, rows, size) {
		add(s.name, s.value)
	}
	r.exec("CREATE TABLE rest AS SELECT * FROM cdc_relay_spool WHERE number <= $1", rows)
	r.exec("TRUNCATE cdc_relay_spool")
	r.exec("INSERT INTO cdc_relay_spool SELECT * FROM rest")
	r.relay.Start(t)
	r.poll(20*time.Millisecond, "the spool is empty", func() bool { return r.spooled() == 0 })
	r.relay.Stop(t)
	times := r.judge()
	add("start of the process to first record, ms", milliseconds(times[0].Sub(began)))
	return samples
}

// startedWith starts the relay, and tells how long it takes until it knows what is spooled, in milliseconds: the median
// of five starts.
func (r *run) startedWith(events int) float64 {
	r.t.Helper()
	var took []time.Duration
	for n := range 5 {
		if n > 0 {
			r.relay.Stop(r.t)
		}
		began := time.Now()
		r.relay.Start(r.t)
		took = append(took, r.poll(5*time.Millisecond, "it knows what is spooled", func() bool {
			return r.status().Spooled == events
		}).Sub(began))
	}
	slices.Sort(took)
	return milliseconds(took[len(took)/2])
}

// drainMost starts the relay, which sends so many events of the spool, and stops it.
func (r *run) drainMost(events int) (began time.Time, samples []sample) {
	r.t.Helper()
	r.relay.Stop(r.t)
	r.exec("UPDATE cdc_relay_state SET paused_at = NULL")
	r.exec("CHECKPOINT")
	began = time.Now()
	r.relay.Start(r.t)
	first := 0
	from := r.poll(5*time.Millisecond, "the first events are journaled", func() bool {
		first = r.settled()
		return first > 0
	})
	before := r.cost()
	to := r.poll(20*time.Millisecond, "most is journaled", func() bool { return r.settled() >= events })
	used := r.cost().since(before)
	rss := r.relay.PeakRSS(r.t)
	r.relay.Stop(r.t)
	sent, none := events-first, mark{}
	return began, []sample{
		{"events/s", float64(sent) / to.Sub(from).Seconds(), none},
		{"relay, CPU s per million", perMillion(used.relay, sent), none},
		{"Postgres, CPU s per million", perMillion(used.postgres.total, sent), none},
		{"  of these sessions", perMillion(used.postgres.sessions(), sent), none},
		{"WAL, bytes per event", float64(used.wal) / float64(sent), none},
		{"relay, peak RSS, MiB", float64(rss) / (1 << 20), none},
	}
}

// deleteByHand deletes, as the relay does, a part of the rows that are left of those that can be sent, but none that
// has events to be sent; then it vacuums.
func (r *run) deleteByHand(d drain, rows, size int) []sample {
	r.t.Helper()
	var first int
	r.one("SELECT min(number) FROM cdc_relay_spool", &first)
	none := mark{}
	began := time.Now()
	r.exec("BEGIN")
	r.exec("DELETE FROM cdc_relay_spool WHERE source = (SELECT source FROM cdc_relay_state) AND number BETWEEN $1 AND $2",
		first, rows)
	took := time.Since(began)
	r.exec("ROLLBACK")
	events := (rows - first + 1) * d.perTransaction
	before := r.cost()
	vacuumed := time.Now()
	r.exec("VACUUM cdc_relay_spool")
	vacuum, tookVacuum := r.cost().since(before), time.Since(vacuumed)
	return []sample{
		{"DELETE by itself, s per million events", perMillion(took, events), none},
		{"VACUUM then, ms", milliseconds(tookVacuum), none},
		{"  CPU, ms", milliseconds(vacuum.postgres.total), none},
		{"  per million events, where a fiftieth of the rows is due, CPU s",
			perMillion(vacuum.postgres.total, max(size*d.events/50, d.events*9/10)), none},
	}
}

// timed is how long a command takes, in milliseconds: the median of five.
func (r *run) timed(args ...string) float64 {
	r.t.Helper()
	var took []time.Duration
	for range 5 {
		began := time.Now()
		if code, out, errors := r.relay.Run(r.t, args...); code != 0 {
			r.t.Logf("%v: exit code %d, %s %s", args, code, out, errors)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return milliseconds(took[len(took)/2])
}

// transactionEach cuts the rows of the spool, so that each has one transaction, as in an outage at 1,000 events/s. It
// returns their number.
func (r *run) transactionEach() (number int) {
	r.t.Helper()
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		r.t.Fatal(err)
	}
	type row struct {
		source         int32
		era            int64
		committed      time.Time
		data           []byte
		ends, n, event int64
	}
	stored, err := r.conn.Query(r.t.Context(),
		"SELECT source, era, committed_at, data, ends, number, events FROM cdc_relay_spool ORDER BY number")
	if err != nil {
		r.t.Fatal(err)
	}
	whole, err := pgx.CollectRows(stored, func(c pgx.CollectableRow) (x row, err error) {
		return x, c.Scan(&x.source, &x.era, &x.committed, &x.data, &x.ends, &x.n, &x.event)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var cut [][]any
	for _, w := range whole {
		messages, err := spool.Unpack(w.data)
		if err != nil {
			r.t.Fatal(err)
		}
		var head, data []byte
		events, open := 0, false
		for _, m := range messages {
			if open = open || m[0] == 'B'; !open {
				head = appendMessage(head, m)
				continue
			}
			if m[0] == 'B' {
				data, events = slices.Clone(head), 0
			}
			if data = appendMessage(data, m); m[0] == 'I' {
				events++
			}
			if m[0] == 'C' {
				const end = 1 + 1 + 8 // type, flags, the commit's LSN
				number++
				cut = append(cut, []any{w.source, number, w.era, int64(binary.BigEndian.Uint64(m[end:])), w.committed, events,
					encoder.EncodeAll(data, nil)})
				open = false
			}
		}
		if open {
			r.t.Fatalf("row %d ends within a transaction", w.n)
		}
	}
	r.exec("TRUNCATE cdc_relay_spool")
	names := []string{"source", "number", "era", "ends", "committed_at", "events", "data"}
	table := pgx.Identifier{"cdc_relay_spool"}
	if _, err := r.conn.CopyFrom(r.t.Context(), table, names, pgx.CopyFromRows(cut)); err != nil {
		r.t.Fatal(err)
	}
	return number
}

func appendMessage(data, m []byte) []byte {
	return append(binary.BigEndian.AppendUint32(data, uint32(len(m))), m...)
}

// copySpool adds copies of the rows behind them, until there are size times as many. Their contents are the same.
func (r *run) copySpool(rows, size int) {
	r.t.Helper()
	const step = 5000 // a transaction that the walsender can hold in memory
	var ends int64
	r.one("SELECT max(ends) FROM cdc_relay_spool", &ends)
	for n := 1; n < size; n++ {
		for from := 1; from <= rows; from += step {
			r.exec(`INSERT INTO cdc_relay_spool SELECT source, number + $1, era, $2, committed_at, events, data
				FROM cdc_relay_spool WHERE number BETWEEN $3 AND $4`, n*rows, ends, from, min(from+step-1, rows))
		}
	}
}

// readAway has the relay, which is paused, read the WAL that the copies made, and waits until no walsender reads it
// once more when it starts.
func (r *run) readAway() {
	r.t.Helper()
	end := r.walEnd()
	r.relay.Start(r.t)
	r.poll(100*time.Millisecond, "the slot is past the copies", func() bool {
		_, left := r.slotLag(end)
		return left == 0
	})
	r.poll(200*time.Millisecond, "the slot needs none of it", func() (none bool) {
		r.exec("CHECKPOINT") // notes which transactions run
		r.one("SELECT restart_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE slot_name = $1", &none, r.slot(),
			outbox.LSN(end).String())
		return none
	})
	r.relay.Stop(r.t)
}
