package bench

import (
	"slices"
	"testing"
	"time"
)

const (
	drainSpooled   = "spooled"           // events come from cdc_relay_spool, in the session that stored them
	drainRestarted = "spooled-restarted" // in one after a restart, which looks every id up
	drainSizes     = "spool-sizes"       // the same with 1, 10 and 100 times as many events spooled
)

// spoolSettings let a paused relay spool soon.
var spoolSettings = []any{"wal.budget", "1MiB", "postgres.wal_sender_timeout", "4s"}

// drainSpool drains once from the spool and once from the slot, all else alike. Who begins changes from turn to turn.
func (st *stage) drainSpool(t *testing.T, v variant, d drain, turn int) []sample {
	free := *st
	free.spool = ""
	var spooled, streamed []sample
	runs := []func(){
		func() {
			t.Run("spool", func(t *testing.T) { spooled = st.drainSpoolOnce(t, v, d) })
		},
		func() {
			t.Run("stream", func(t *testing.T) { streamed = free.drainOnce(t, v, d, turn) })
		},
	}
	if turn%2 == 0 {
		slices.Reverse(runs)
	}
	for _, run := range runs {
		if run(); t.Failed() {
			t.FailNow()
		}
	}
	for _, s := range streamed {
		if s.name == relayRate {
			spooled = append(spooled, sample{"the stream: " + s.name, s.value, mark{}},
				sample{"  spool / stream", spooled[0].value / s.value, mark{atLeast: 0.6}})
		}
	}
	return spooled
}

// drainSpoolOnce fills a slot while the relay is paused, has the relay spool all of it, and resumes it.
func (st *stage) drainSpoolOnce(t *testing.T, v variant, d drain) []sample {
	r := st.newRun(t, v)
	r.patience += time.Duration(d.events) * 200 * time.Microsecond
	r.command("pause")
	r.relay.Stop(t)
	r.load(d)
	r.exec("CHECKPOINT")
	r.relay.Start(t)
	began := r.poll(time.Millisecond, "the first row is stored", func() bool { return r.spooled() > 0 })
	first, atFirst := r.spooled(), r.cost()
	stored := r.poll(20*time.Millisecond, "all is stored", func() bool { return r.spooled() == d.events })
	storing := r.cost().since(atFirst)
	var table float64
	r.one("SELECT pg_total_relation_size('cdc_relay_spool')", &table)
	var started time.Duration
	if st.spool == drainRestarted {
		r.relay.Stop(t)
		before := time.Now()
		r.relay.Start(t)
		started = r.poll(5*time.Millisecond, "it knows what is spooled", func() bool {
			return r.status().Spooled == d.events
		}).Sub(before)
	}
	asked := time.Now()
	r.status()
	answered := time.Since(asked)

	r.exec("CHECKPOINT")
	atResume := r.cost()
	r.command("resume")
	r.poll(20*time.Millisecond, "everything is journaled", func() bool { return r.settled() >= d.events })
	sending := r.cost().since(atResume)
	empty := r.poll(20*time.Millisecond, "the spool is empty", func() bool { return r.spooled() == 0 })
	rss := r.relay.PeakRSS(t)
	r.relay.Stop(t)
	times := r.judge()
	beforeVacuum := r.cost()
	r.exec("VACUUM cdc_relay_spool")
	vacuum := r.cost().since(beforeVacuum)
	took := times[len(times)-1].Sub(times[0])
	none, events := mark{}, float64(d.events)
	return []sample{
		{"relay, events/s, first to last record", events / took.Seconds(), none},
		{"stored, events/s", float64(d.events-first) / stored.Sub(began).Seconds(), none},
		{"relay, CPU s per million, storing", perMillion(storing.relay, d.events-first), none},
		{"Postgres, CPU s per million, storing", perMillion(storing.postgres.total, d.events-first), none},
		{"  of these sessions", perMillion(storing.postgres.sessions(), d.events-first), none},
		{"WAL written while storing, bytes per event", float64(storing.wal) / float64(d.events-first), none},
		{"the table, bytes per event", table / events, none},
		{"start of the process to what is spooled known, ms", milliseconds(started), none},
		{"an answer of /api/v1/status, ms", milliseconds(answered), none},
		{"relay, CPU s per million, sending", perMillion(sending.relay, d.events), none},
		{"Postgres, CPU s per million, sending", perMillion(sending.postgres.total, d.events), none},
		{"WAL written while sending, bytes per event", float64(sending.wal) / events, none},
		{"last record to the spool empty, ms", milliseconds(empty.Sub(times[len(times)-1])), none},
		{"VACUUM of the spool, CPU s per million", perMillion(vacuum.postgres.total, d.events), none},
		{"VACUUM of the spool, WAL, bytes per event", float64(vacuum.wal) / events, none},
		{"relay, peak RSS, MiB", float64(rss) / (1 << 20), none},
	}
}

// command runs one of the relay's commands.
func (r *run) command(args ...string) {
	r.t.Helper()
	if code, out, errors := r.relay.Run(r.t, args...); code != 0 {
		r.t.Fatalf("%v: exit code %d, %s %s", args, code, out, errors)
	}
}

// spooled is how many events are in the spool.
func (r *run) spooled() (events int) {
	r.t.Helper()
	r.one("SELECT coalesce(sum(events), 0) FROM cdc_relay_spool", &events)
	return events
}
