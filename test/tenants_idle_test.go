package test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// backends logs the memory of the server's processes for the relay, Pss: what others share counts in part (proc(5),
// /proc/pid/smaps_rollup). It returns that of the largest one, in bytes.
func (f *tenancy) backends(t *testing.T) (most int64) {
	t.Helper()
	list := f.pg.Query(t, `SELECT string_agg(pid || ' ' || replace(application_name, ' ', '_') || ' ' || backend_type, ',')
 FROM pg_stat_activity WHERE application_name LIKE 'cdc-relay/%' OR backend_type = 'walsender'`)
	for _, line := range strings.Split(list, ",") {
		pid, what, _ := strings.Cut(line, " ")
		rollup, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(rollup), "\nPss:")
		kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, kib<<10)
		t.Logf("%d tables: %s has %d MiB", len(f.all), what, kib>>10)
	}
	return most
}

// rest measures the relay while nothing happens: the share of a core that it takes, in percent, and its memory.
func (f *tenancy) rest(t *testing.T, still time.Duration) (percent float64, bytes int64) {
	t.Helper()
	before := cpuTime(t, f.relay.PID())
	time.Sleep(still)
	percent = 100 * (cpuTime(t, f.relay.PID()) - before).Seconds() / still.Seconds()
	bytes = rss(t, f.relay.PID())
	t.Logf("%d tables: %.2f %% of a core, %d MiB; load %s", len(f.all), percent, bytes>>20, harness.LoadAverage())
	f.backends(t)
	return percent, bytes
}

// A relay of many tables that are empty has nothing to do, and one whose slot is lost catches up with all of them.
// Break it catches: work and memory that grow with the tables, or with their square. Seen to fail (1.3 % of a core)
// with each table asked each minute for what may be pruned.
func TestManyTablesAtRestCostLittle(t *testing.T) {
	harness.Full(t)
	tables := harness.Count(t, "tables at rest")
	if tables == 0 {
		t.Skip("at night")
	}
	const still, mostPercent, mostMore = 40 * time.Second, 1.0, 10 << 20
	one := newTenancy(t, 1)
	one.start(t)
	time.Sleep(still / 2) // after the first round of the reconciler
	_, alone := one.rest(t, still)
	one.relay.Stop(t)

	f := newTenancy(t, tables)
	began := time.Now()
	f.start(t)
	t.Logf("%d tables: ready %v after the start", tables, time.Since(began).Round(time.Millisecond))
	time.Sleep(still / 2)
	percent, many := f.rest(t, still)
	if more := many - alone; percent > mostPercent || more > mostMore {
		t.Errorf("%d tables at rest: got %.2f %% of a core and %d KiB more than one, want at most %v %% and %d MiB", tables,
			percent, more>>10, mostPercent, mostMore>>20)
	}

	f.relay.Stop(t)
	const rows = 20
	f.pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR i IN 0..%d LOOP
  EXECUTE format('INSERT INTO tenant_%%s.outbox_events (aggregate_type, aggregate_id, event_type, payload)
   SELECT ''order'', ''k'' || n, ''x'', ''{}'' FROM generate_series(1, %d) n', i); END LOOP; END $$`, tables-1, rows))
	f.loseSlot(t)
	began = time.Now()
	f.relay.Start(t)
	f.relay.WaitReady(t, 10*time.Minute)
	harness.Eventually(t, 10*time.Minute, "all rows are journaled", func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, "SELECT count(*) FROM cdc_relay_journal")
		if err != nil || got != strconv.Itoa(tables*rows) {
			return fmt.Sprintf("%s of %d: %v", got, tables*rows, err)
		}
		return ""
	})
	t.Logf("%d tables, slot lost: caught up with %d rows %v after the start; load %s", tables, tables*rows,
		time.Since(began).Round(time.Millisecond), harness.LoadAverage())
}
