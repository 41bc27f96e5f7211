package test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

const migrating = "../docs/migrating.md"

// commands are the arguments of cdc-relay in the page's block of commands of that name, line by line.
func commands(t *testing.T, page, name string) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```sh\n# "+name+"\n")
	block, _, _ := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("%s has no commands %q", page, name)
	}
	for line := range strings.Lines(block) {
		words := strings.Fields(line)
		if words[0] != "cdc-relay" {
			t.Fatalf("%s, %s: %q is no command of the relay", page, name, line)
		}
		at := slices.Index(words, "--config")
		lines = append(lines, slices.Concat(words[1:at], words[at+2:])) // the harness has its own file
	}
	return lines
}

// runCommands runs them but `run`, which the test does in its way; each must succeed.
func runCommands(t *testing.T, r *harness.Relay, page, name string) {
	t.Helper()
	for _, args := range commands(t, page, name) {
		if args[0] == "run" {
			continue
		}
		if code, stdout, stderr := r.Run(t, args...); code != 0 {
			t.Fatalf("%s: exit code %d, want 0; it said:\n%s%s", strings.Join(args, " "), code, stdout, stderr)
		}
	}
}

// pageSettings are the keys of the page's block of YAML with that first comment.
func pageSettings(t *testing.T, page, comment string) harness.Settings {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```yaml\n# " + comment + "[^\n]*\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no settings %q", page, comment)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(m[1], &tree); err != nil {
		t.Fatal(err)
	}
	flat := harness.Settings{}
	flatten(flat, "", tree)
	return flat
}

func flatten(into harness.Settings, path string, tree map[string]any) {
	for key, value := range tree {
		if inner, is := value.(map[string]any); is {
			flatten(into, path+key+".", inner)
			continue
		}
		into[path+key] = value
	}
}

// pairs are the settings as With takes them.
func pairs(s harness.Settings) (list []any) {
	for key, value := range s {
		list = append(list, key, value)
	}
	return list
}

// The page about migrating from a polling worker, step by step, under load: a shadow beside the worker, the cut-over,
// the way back, and forward again. Breaks it catches: an event that neither of the two sends, or both; keys out of
// order around a change of hands; a shadow that takes something from the worker. Seen to fail (events twice) with
// `init` on the page without --no-slot, without the statement that marks, and with the slot not dropped.
func TestMigrationFromAPollingWorkerIsAsItsPageSays(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	sql, names := statements(t, migrating)
	if want := []string{"shadow", "mark", "seen"}; !slices.Equal(names, want) {
		t.Fatalf("statements of the page: got %q, want %q", names, want)
	}
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t))
	s.pg.Exec(t, olderOutbox)
	s.pg.Exec(t, workerTables)
	w := s.startWorker(t)
	s.load(t, harness.Workload{Events: 400, OnlyKept: true}).Wait(t)
	harness.Eventually(t, time.Minute, "the worker has published what was there", s.marked(t))
	older := s.number(t, s.pg.Truth(t))

	shadow := s.another(t)
	settings := pageSettings(t, migrating, "shadow.yaml")
	slot, topic := harness.Unique(t, "shadow"), harness.Unique(t, "shadow")
	settings["postgres.slot"], settings["message.topic"] = slot, topic+".{aggregate_type}"
	shadow = harness.NewRelay(t, shadow.Settings.With(pairs(settings)...))
	runCommands(t, shadow, migrating, "shadow")
	shadow.Start(t)
	shadow.WaitReady(t, time.Minute)

	load := s.load(t, harness.Workload{Seed: 2, Rate: 300, OnlyKept: true})
	load.WaitCommitted(t, 100, time.Minute)
	runCommands(t, s.relay, migrating, "prepare")
	load.WaitCommitted(t, 100, time.Minute)
	w.Stop(t)
	s.start(t)
	load.WaitCommitted(t, 150, time.Minute)
	byWorker := w.sent

	s.relay.Stop(t)
	s.pg.Exec(t, sql["mark"])
	runCommands(t, s.relay, migrating, "back")
	w = s.startWorker(t)
	load.WaitCommitted(t, 150, time.Minute)
	w.Stop(t)
	again := w.sent
	s.start(t)
	load.WaitCommitted(t, 150, time.Minute)
	load.Stop(t)
	s.settled(t)

	s.pg.WaitConfirmed(t, slot, settlePatience)
	shadow.Stop(t)
	s.pg.Exec(t, strings.ReplaceAll(sql["shadow"], "('shadow')", "('"+slot+"')"))
	shadowed := 0
	harness.Consume(t, s.kafka.Addrs, []string{topic + ".order", topic + ".payment"}, func(*kgo.Record) { shadowed++ })
	if want := s.number(t, s.pg.Truth(t)) - older; shadowed != want {
		t.Errorf("records of the shadow: got %d, want %d, what was written since it began", shadowed, want)
	}
	harness.Eventually(t, time.Minute, "every row is marked", s.marked(t))
	runCommands(t, s.relay, migrating, "look")
	report := s.judgeBoth(t)
	t.Logf("%d events; the worker sent %d of them, and %d when it was back", report.Expected, byWorker, again)
	if byWorker <= older || again == 0 {
		t.Errorf("the worker sent %d events of %d that were there, and %d when it was back: nothing was under load", byWorker,
			older, again)
	}
}

// The page about migrating from Debezium's outbox router: the relay goes on with a slot that another client has read,
// on a publication of all tables. The other client is played by the SQL functions of Postgres: the slot's position is
// all that it leaves. Breaks it catches: an event sent again that the slot is past, one that it holds and the table
// does not, one twice that both have. Seen to fail (all rows come) without the page's UPDATE, and (rows lost) with the
// slot dropped there.
func TestTakingOverDebeziumsSlotIsAsItsPageSays(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	sql, _ := statements(t, migrating)
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t))
	settings := pageSettings(t, migrating, "relay.yaml")
	settings["postgres.slot"] = harness.Unique(t, "debezium")
	settings["message.topic"] = strings.ReplaceAll(s.settings["message.topic"].(string), "aggregate_type", "aggregatetype")
	settings["outbox.columns.headers"] = ""
	s.relay = harness.NewRelay(t, s.settings.With(pairs(settings)...))
	slot := settings["postgres.slot"].(string)

	s.pg.Exec(t, `CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregatetype varchar(255) NOT NULL,
		aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
		CREATE TABLE other (n int PRIMARY KEY, was int);
		CREATE PUBLICATION dbz_publication FOR ALL TABLES`)
	s.pg.Exec(t, "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	insert := func(from, to int) {
		t.Helper()
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload)
			SELECT 'order', 'k' || n %% 3, 'made', jsonb_build_object('n', n) FROM generate_series(%d, %d) n`, from, to))
		s.pg.Exec(t, fmt.Sprintf("INSERT INTO other SELECT n, 0 FROM generate_series(%d, %d) n; UPDATE other SET was = 1; "+
			"DELETE FROM other WHERE n %% 7 = 0", from, to))
	}
	gone := func(n int) {
		t.Helper()
		s.pg.Exec(t,
			fmt.Sprintf(`BEGIN; INSERT INTO outbox VALUES ('00000000-0000-0000-0000-%012d', 'order', 'k%d', 'made', '{"n": %d}');
			DELETE FROM outbox WHERE id = '00000000-0000-0000-0000-%012d'; COMMIT`, n, n%3, n, n))
	}
	insert(1, 50)
	gone(51)
	s.pg.Exec(t, "SELECT pg_replication_slot_advance('"+slot+"', pg_current_wal_lsn())") // so far the connector came
	insert(52, 80)
	gone(81)
	s.relay.Init(t)
	s.pg.Exec(t, sql["seen"])
	insert(82, 90)
	if code, stdout, stderr := s.relay.Run(t, "check"); code != 0 {
		t.Fatalf("check: exit code %d, want 0; it said:\n%s%s", code, stdout, stderr)
	}
	s.start(t)
	insert(91, 100)
	gone(101)
	s.settledSlot(t, slot)

	var got []string
	harness.Consume(t, s.kafka.Addrs, []string{s.settings.Topic("order")}, func(r *kgo.Record) {
		got = append(got, strings.TrimPrefix(strings.TrimSuffix(string(r.Value), "}"), `{"n": `))
	})
	slices.Sort(got)
	var want []string
	for n := 52; n <= 101; n++ {
		want = append(want, fmt.Sprint(n))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events: got %v, want each of 52 to 101 once", got)
	}
	s.relay.Stop(t)
	behind := s.pg.Query(t,
		fmt.Sprintf(`SELECT count(*) FROM pg_logical_slot_peek_binary_changes('%s', NULL, NULL, 'proto_version', '1',
		'publication_names', 'dbz_publication') WHERE get_byte(data, 0) = ascii('I') AND position('{"n": ' IN encode(data,
		'escape')) > 0`, slot))
	if behind != "0" {
		t.Errorf("rows that the slot holds after a stop: got %s, want none that was sent", behind)
	}
}

// settledSlot is settled for a slot that is not the settings'.
func (s *scenario) settledSlot(t *testing.T, slot string) {
	t.Helper()
	s.pg.WaitConfirmed(t, slot, settlePatience)
	harness.Eventually(t, settlePatience, "nothing is parked", func(context.Context) string {
		if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"); n != "0" {
			return n + " are"
		}
		return ""
	})
}
