package test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// fleet is many relays of one directory: ten schemas of each of its databases have an outbox each.
type fleet struct {
	t         *testing.T
	server    *harness.PG // one of the databases
	databases []*harness.PG
	names     []string
	settings  map[string]harness.Settings
	of        map[string]*harness.PG
}

// newFleet makes n outboxes and what their relays need.
func newFleet(t *testing.T, n int, kafka *harness.Cluster) *fleet {
	t.Helper()
	const each = 10 // outboxes of a database
	limit := strconv.Itoa(2*n + 50)
	f := &fleet{t: t, settings: map[string]harness.Settings{}, of: map[string]*harness.PG{}}
	f.server = harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"max_wal_senders": limit,
		"max_replication_slots": limit, "max_connections": strconv.Itoa(10*n + 100)}})
	topic := harness.Unique(t, "many")
	kafka.CreateTopic(t, topic, 6, nil)
	for i := range n {
		if i%each == 0 {
			name := fmt.Sprintf("tenants%d", i/each)
			f.server.Exec(t, "CREATE DATABASE "+name)
			f.databases = append(f.databases, &harness.PG{Server: f.server.Server, Database: name,
				URL: f.server.Server.URL(name)})
		}
		pg, name := f.databases[i/each], fmt.Sprintf("t%03d", i)
		pg.Exec(t, "CREATE SCHEMA "+name)
		s := harness.NewSettings(t, pg, kafka.Addrs).With("outbox.table", name+".outbox_events", "postgres.schema", name,
			"postgres.slot", name, "postgres.publication", name, "message.topic", topic, "limits.in_flight_bytes", "4MiB")
		harness.NewRelay(t, s).Init(t)
		f.names, f.settings[name], f.of[name] = append(f.names, name), s, pg
	}
	return f
}

// awaitAll waits until so many relays of the process have the role.
func (f *fleet) awaitAll(d *harness.Directory, role string, n int) time.Duration {
	f.t.Helper()
	began := time.Now()
	harness.Eventually(f.t, 5*time.Minute, fmt.Sprintf("%d relays are %s", n, role), func(ctx context.Context) string {
		got, err := d.AskMetric(ctx, "cdc_relay_role", `role="`+role+`"`)
		if err != nil || int(got) != n {
			return fmt.Sprintf("got %v, %v", got, err)
		}
		return ""
	})
	return time.Since(began)
}

// connections are those of the relays' databases, and of them the replication connections.
func (f *fleet) connections() (all, streams int) {
	count := func(where string) int {
		n, err := strconv.Atoi(f.server.Query(f.t, `SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND
 backend_type IN ('client backend', 'walsender')`+where))
		if err != nil {
			f.t.Fatal(err)
		}
		return n
	}
	return count(""), count(" AND backend_type = 'walsender'")
}

// rss is the memory that a process has now, in bytes (proc(5), VmRSS).
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// idles measures a process that has nothing to do for the time: the share of a core that each of n relays takes, in
// percent, and the process's memory.
func (f *fleet) idles(what string, d *harness.Directory, n int, still time.Duration) (percent float64, bytes int64) {
	f.t.Helper()
	before := cpuTime(f.t, d.PID())
	time.Sleep(still)
	used := cpuTime(f.t, d.PID()) - before
	percent, bytes = 100*used.Seconds()/still.Seconds()/float64(n), rss(f.t, d.PID())
	all, streams := f.connections()
	f.t.Logf("%s, %d relays: %.3f %% of a core each, %d MiB of memory, %d connections of the server, %d of them streams",
		what, n, percent, bytes>>20, all, streams)
	return percent, bytes
}

// insert adds events to each outbox.
func (f *fleet) insert(each int) {
	for _, name := range f.names {
		f.of[name].Exec(f.t, fmt.Sprintf(`INSERT INTO %s.outbox_events (aggregate_type, aggregate_id, event_type, payload)
 SELECT 'order', (i %% 5)::text, 'x', '{"a": 1}' FROM generate_series(1, %d) i`, name, each))
	}
}

// journaled waits until each outbox has so many journal rows, and no parked event.
func (f *fleet) journaled(each int) {
	f.t.Helper()
	for _, name := range f.names {
		harness.Eventually(f.t, 5*time.Minute, name+" is journaled", func(ctx context.Context) string {
			got, err := f.of[name].TryQuery(ctx, fmt.Sprintf("SELECT count(*) FROM %s.cdc_relay_journal", name))
			if err != nil || got != strconv.Itoa(each) {
				return fmt.Sprintf("got %s, %v, want %d", got, err, each)
			}
			return ""
		})
	}
}

// Many outboxes of several databases in one process, idle and as standbys, then with every tenth file changed under
// load and the process killed. Breaks it catches: connections, memory or CPU that a quiet relay should not take; a
// takeover of many that takes long; an event that is lost.
func TestManyRelaysOfAProcessCostLittle(t *testing.T) {
	harness.Full(t)
	n := harness.Count(t, "relays of a directory")
	if n == 0 {
		t.Skip("at night")
	}
	f := newFleet(t, n, harness.Kafka(t))
	d, standby := harness.NewDirectory(t), harness.NewDirectory(t)
	d.Put(t, f.names[0], f.settings[f.names[0]])
	d.Start(t)
	f.awaitAll(d, "active", 1)
	_, alone := f.idles("one active", d, 1, 10*time.Second)
	for _, name := range f.names {
		d.Put(t, name, f.settings[name])
		standby.Put(t, name, f.settings[name])
	}
	t.Logf("%d relays are active %v after their files came", n, f.awaitAll(d, "active", n).Round(time.Second))
	time.Sleep(idlePool)
	percent, all := f.idles("active", d, n, time.Minute)
	each := (all - alone) / int64(n-1)
	t.Logf("memory of each further relay: %d KiB", each>>10)
	const poolAndStream, mostPercent = 4 + 1, 0.3
	if connections, _ := f.connections(); percent > mostPercent || each > 2<<20 || connections > poolAndStream*n+10 {
		t.Errorf("an idle relay takes %.3f %% of a core, %d KiB and %d connections for %d relays; want at most %v %%, "+
			"2 MiB and %d each", percent, each>>10, connections, n, mostPercent, poolAndStream)
	}
	standby.Start(t)
	f.awaitAll(standby, "standby", n)
	time.Sleep(30 * time.Second)
	if percent, _ := f.idles("standby", standby, n, time.Minute); percent > mostPercent {
		t.Errorf("a standby takes %.3f %% of a core, want at most %v %%", percent, mostPercent)
	}

	const rounds, events = 5, 20
	for round := range rounds {
		f.insert(events)
		for i := round; i < n; i += 10 {
			d.Put(t, f.names[i], f.settings[f.names[i]].With("limits.in_flight_events", 10_000+round))
		}
	}
	f.journaled(rounds * events)
	f.insert(events)
	d.Kill9()
	t.Logf("all relays are active in the other process %v after the kill", f.awaitAll(standby, "active", n))
	f.insert(events)
	f.journaled((rounds + 2) * events)
	standby.Stop(t)
}

// idlePool is a little longer than a pool keeps a connection that no one uses.
const idlePool = 5*time.Minute + 30*time.Second
