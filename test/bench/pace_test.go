package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// costs measures what an event costs at each rate, in single-row commits and in transactions of different sizes, and
// what the relay costs when nothing comes.
func (st *stage) costs(t *testing.T, r *result) {
	for _, rate := range st.rates {
		for _, kind := range []string{"single", "mixed"} {
			p, commits := st.pace(rate), "of the pace's size"
			if kind == "mixed" {
				p, commits = mixedPace(rate, st.pacedWarm, st.pacedFor), fmt.Sprintf("of 1 to %d rows", mixedRows)
			}
			what := fmt.Sprintf("%d events per second in transactions %s by %d sessions for %v after %v of warm-up, then "+
				"%v without any, %v", rate, commits, p.writers, st.pacedFor, st.pacedWarm, st.pacedFor, st.shape)
			turn := 0
			st.repeat(t, r, fmt.Sprintf("%s-%d-%s", atPace, rate, kind), what, func(t *testing.T) []sample {
				turn++
				return st.inTurns(t, turn, func(t *testing.T, v variant) []sample { return st.costOnce(t, v, p) })
			})
		}
	}
}

// spending is what the relay and its Postgres sessions have used up to one moment.
type spending struct {
	at                         time.Time
	relay, sessions, walsender time.Duration // CPU, user and system
	wakes                      float64       // of the relay's threads
	wal                        uint64
	requests, transactions     float64 // to the broker; of the journal
	collections                float64 // of garbage
}

func (r *run) spending() spending {
	r.t.Helper()
	s := spending{
		wal:      r.walEnd(),
		requests: r.relay.Metric(r.t, "kafka_produce_requests_total"), transactions: r.relay.Metric(r.t,
			"outbox_settle_batch_size_count"),
		collections: r.relay.Metric(r.t, "go_gc_duration_seconds_count"),
	}
	sum := func(where string) (sum time.Duration) {
		var pids []int
		r.one("SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity WHERE datname = current_database() AND "+where,
			&pids)
		for _, pid := range pids {
			used, _ := threads(pid)
			sum += used
		}
		return sum
	}
	s.sessions = sum("application_name LIKE 'cdc-relay/%' AND backend_type = 'client backend'")
	s.walsender = sum("backend_type = 'walsender'")
	s.relay, s.wakes = threads(r.relay.PID())
	s.at = time.Now()
	return s
}

// threads returns the CPU time of a process's threads, to the nanosecond, and how often one of them had slept and ran
// again. Threads that have ended are left out: Go keeps its own, and a session of Postgres has one.
func threads(pid int) (used time.Duration, wakes float64) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // none: it has ended
	for _, task := range tasks {
		var nanoseconds int64
		text, _ := os.ReadFile(filepath.Join(task, "schedstat")) // the first field; 0 where the kernel does not count
		_, _ = fmt.Sscan(string(text), &nanoseconds)
		used += time.Duration(nanoseconds)
		text, _ = os.ReadFile(filepath.Join(task, "status"))
		if _, rest, found := strings.Cut(string(text), "\nvoluntary_ctxt_switches:"); found {
			var n float64
			_, _ = fmt.Sscan(rest, &n)
			wakes += n
		}
	}
	return used, wakes
}

// costOnce measures one relay at a pace, and then at rest.
func (st *stage) costOnce(t *testing.T, v variant, p pace) []sample {
	r := st.newRun(t, v)
	before := r.spending()
	l, _ := r.paceProcess(p, r.relay.PID())
	r.judgePace(p)
	after := r.spending()
	time.Sleep(min(settleTime, r.pacedFor)) // what follows the last event is not what rest costs
	calm := r.spending()
	time.Sleep(r.pacedFor)
	end := r.spending()
	rss := r.relay.PeakRSS(t)
	r.relay.Stop(t)
	none, events := mark{}, float64(p.total)
	resting := func(d time.Duration) float64 { return milliseconds(d) / end.at.Sub(calm.at).Seconds() }
	return []sample{
		{"relay, CPU s per million", perMillion(after.relay-before.relay, p.total), none},
		{"its Postgres sessions, CPU s per million", perMillion(after.sessions-before.sessions, p.total), none},
		{"its walsender, CPU s per million", perMillion(after.walsender-before.walsender, p.total), none},
		{"relay, wake-ups of threads per event", (after.wakes - before.wakes) / events, none},
		{"relay, collections of garbage per 1,000 events", 1000 * (after.collections - before.collections) / events, none},
		{"produce requests per event", (after.requests - before.requests) / events, none},
		{"journal transactions per event", (after.transactions - before.transactions) / events, none},
		{"WAL, bytes per event, the events' own included", float64(after.wal-before.wal) / events, none},
		{relayLatency + "p50 ms", l.p50, none},
		{relayLatency + "p99 ms", l.p99, none},
		{"  events per second", l.rate, mark{atLeast: 0.95 * float64(p.rate)}},
		{"at rest, relay, ms of CPU per second", resting(end.relay - calm.relay), none},
		{"at rest, its Postgres sessions, ms of CPU per second", resting(end.sessions - calm.sessions), none},
		{"at rest, its walsender, ms of CPU per second", resting(end.walsender - calm.walsender), none},
		{"at rest, relay, wake-ups of threads per second", (end.wakes - calm.wakes) / end.at.Sub(calm.at).Seconds(), none},
		{"relay, peak RSS, MiB", float64(rss) / (1 << 20), none},
	}
}

// settleTime is as long as the state row and the last marks may come after the last event.
const settleTime = 3 * time.Second

// Break it catches: a mixed pace that leaves events out, writes one twice, or has transactions of one size.
func TestTransactionsOfAPaceFollowEachOther(t *testing.T) {
	for _, p := range []pace{{rows: 1}, {rows: 7}, {}} {
		next, sizes := 0, map[int]bool{}
		for n := range 3 * mixedRows {
			from, to := p.transaction(n)
			if from != next || to <= from {
				t.Fatalf("%d rows in a transaction: transaction %d has events %d to %d, want it to begin at %d", p.rows, n,
					from, to, next)
			}
			next, sizes[to-from] = to, true
		}
		if want := map[bool]int{true: mixedRows, false: 1}[p.rows == 0]; len(sizes) != want {
			t.Errorf("%d rows in a transaction: got %d sizes, want %d", p.rows, len(sizes), want)
		}
	}
}
