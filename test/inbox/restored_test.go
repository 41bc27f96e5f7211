package inbox

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// backup takes a copy of a database, and returns what puts the copy in its place.
type backup func(t *testing.T, pg *harness.PG) (restore func())

const dump = "dump"

func dumped(t *testing.T, pg *harness.PG) (file string) {
	t.Helper()
	file = filepath.Join(pg.Server.Dir(), harness.Unique(t, dump))
	pg.Program(t, "pg_dump", "-Fc", "-f", file, pg.URL)
	return file
}

// swapped restores into another database of the same server, and then exchanges their names.
func swapped(t *testing.T, pg *harness.PG) func() {
	t.Helper()
	file := dumped(t, pg)
	return func() {
		t.Helper()
		other := pg.Database + "_restored"
		pg.Exec(t, "CREATE DATABASE "+other)
		pg.Program(t, "pg_restore", "-d", pg.Server.URL(other), file)
		admin := &harness.PG{Server: pg.Server, Database: "postgres", URL: pg.Server.URL("postgres")}
		admin.Exec(t, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS false", pg.Database))
		admin.Exec(t, fmt.Sprintf("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '%s'",
			pg.Database))
		admin.Exec(t, fmt.Sprintf("ALTER DATABASE %[1]s RENAME TO %[1]s_old", pg.Database))
		admin.Exec(t, fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", other, pg.Database))
		admin.Exec(t, fmt.Sprintf("DROP DATABASE %s_old WITH (FORCE)", pg.Database))
	}
}

// cleaned drops the tables of the running database and restores them.
func cleaned(t *testing.T, pg *harness.PG) func() {
	t.Helper()
	file := dumped(t, pg)
	return func() {
		t.Helper()
		pg.Program(t, "pg_restore", "--clean", "--if-exists", "--exit-on-error", "-d", pg.URL, file)
	}
}

// filled puts the rows of the copy in the place of those in the tables: the tables stay, and so does the server.
func filled(t *testing.T, pg *harness.PG) func() {
	t.Helper()
	tables := append([]string{"effect"}, inboxTables[:len(inboxTables)-1]...)
	pg.Exec(t, "CREATE SCHEMA older")
	for _, table := range tables {
		pg.Exec(t, fmt.Sprintf("CREATE TABLE older.%[1]s AS TABLE %[1]s", table))
	}
	return func() {
		t.Helper()
		sql := "BEGIN; LOCK TABLE " + strings.Join(tables, ", ") + " IN ACCESS EXCLUSIVE MODE; "
		for _, table := range tables {
			sql += fmt.Sprintf("DELETE FROM %[1]s; INSERT INTO %[1]s OVERRIDING SYSTEM VALUE TABLE older.%[1]s; ", table)
		}
		if err := execAgain(t.Context(), pg.Connect(t), sql+"COMMIT"); err != nil {
			t.Fatalf("put the copy in the tables: %v", err)
		}
	}
}

// A database is restored beneath its running consumer, in each way that leaves the server running: what had been done
// since the copy is done again, in order, the consumer never ends, and the restore meets nothing of the consumer's.
// Seen to fail with the look at the server alone: 120 to 138 effects were missing in five of them.
func TestARestoredDatabaseIsFilledUpAgain(t *testing.T) {
	harness.Full(t)
	for name, c := range map[string]struct {
		backup  backup
		running bool // events come while it is restored
	}{
		"swapped": {swapped, false}, "swapped while events come": {swapped, true},
		"cleaned": {cleaned, false}, "cleaned while events come": {cleaned, true},
		"filled": {filled, false}, "filled while events come": {filled, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range count(1, 20) {
				restoreOnce(t, c.backup, c.running)
			}
		})
	}
}

func restoreOnce(t *testing.T, take backup, running bool) {
	t.Helper()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	log := &harness.Log{}
	_, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Log: newLog(log),
	}, onOrder)
	sendSome(t, addrs, topic, 0, 60)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "60")
	restore := take(t, pg)
	sendSome(t, addrs, topic, 60, 180)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "180")
	var sender sync.WaitGroup
	if running {
		sender.Go(func() {
			for n := 180; n < 240; n++ {
				sendSome(t, addrs, topic, n, n+1)
			}
		})
	}
	restore()
	sender.Wait()
	if !running {
		until(t, pg, "SELECT count(*) FROM effect", "180")
		sendSome(t, addrs, topic, 180, 240)
	}
	until(t, pg, "SELECT count(*) FROM effect", "240")
	stop()
	judge(t, pg, 240)
	if !strings.Contains(log.String(), "set back") {
		t.Errorf("the log does not say that the database was set back:\n%s", log)
	}
}

func sendSome(t *testing.T, addrs []string, topic string, from, to int) {
	t.Helper()
	var records []*kgo.Record
	for n := from; n < to; n++ {
		records = append(records, event(topic, n, 5))
	}
	produce(t, addrs, records...)
}

// A consumer that is stopped right after its database was restored leaves the offsets as the restore made them, and
// the next start begins there. Seen to fail with offsets that are written without a look at what was there: 180, and
// 120 effects were missing.
func TestAStopLeavesRestoredOffsetsAlone(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 3)
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}}
	_, stop := start(t, newPool(t, pg.URL, 6), config, onOrder)
	sendSome(t, addrs, topic, 0, 60)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "60")
	restore := filled(t, pg)
	sendSome(t, addrs, topic, 60, 180)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", "180")
	restore()
	stop()
	if got := pg.Query(t, "SELECT sum(next_offset) FROM inbox_offset"); got != "60" {
		t.Errorf("the offsets after the stop: got %s, want 60", got)
	}
	_, stop = start(t, newPool(t, pg.URL, 6), config, onOrder)
	until(t, pg, "SELECT count(*) FROM effect", "180")
	stop()
	judge(t, pg, 180)
}

// A standby that has not got the last commits becomes the primary. It has passed since there is an inbox, which tells a
// server by its start.
func TestAPromotionThatLosesCommitsIsFilledUpAgain(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	primary := harness.NewOwnPostgres(t, embedded.PostgresConfig{Settings: map[string]string{"wal_level": "replica"}})
	primary.Exec(t, effects)
	standby := harness.NewStandby(t, primary)
	addrs, topic := topicOf(t, 3)
	either := primary.Either(standby)
	_, stop := start(t, newPool(t, either.URL, 6), inbox.Config{Brokers: addrs, Topics: []string{topic}}, onOrder)
	sendSome(t, addrs, topic, 0, 60)
	until(t, primary, "SELECT sum(next_offset) FROM inbox_offset", "60")
	standby.WaitReplayed(t, primary)
	if err := standby.Server.Fast(t.Context()); err != nil { // it gets nothing of what follows
		t.Fatal(err)
	}
	sendSome(t, addrs, topic, 60, 180)
	until(t, primary, "SELECT sum(next_offset) FROM inbox_offset", "180")
	if err := primary.Server.Kill9(); err != nil {
		t.Fatal(err)
	}
	if err := standby.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	sendSome(t, addrs, topic, 180, 240)
	until(t, standby, "SELECT count(*) FROM effect", "240")
	stop()
	judge(t, standby, 240)
}
