package inbox

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The night's size; a machine with less room takes less.
var large = flag.Int("large", 100_000_000, "rows of a large inbox at night")

// fill puts rows of a former fortnight into the inbox: their ids are older than those of events to come, as those of
// uuids with a time in them are. The key is made again afterwards, which is faster.
const fill = `ALTER TABLE inbox_event DROP CONSTRAINT inbox_event_pkey;
	INSERT INTO inbox_event (consumer, source, event_id, state, at)
		SELECT 1, 0, '01900000-' || lpad(to_hex(i >> 24), 4, '0') || '-7000-8000-' || lpad(to_hex(i & 16777215), 12, '0'), 0,
			now() - interval '13 days' + i * interval '13 days' / %[1]d
		FROM generate_series(1::bigint, %[1]d) i;
	ALTER TABLE inbox_event ADD CONSTRAINT inbox_event_pkey PRIMARY KEY (consumer, source, event_id);
	VACUUM ANALYZE inbox_event; CHECKPOINT`

// An inbox that knows very many ids costs as much of the consumer and of Postgres for each event as an empty one. At
// night it is 100 million rows and a fifth more is allowed; CI looks that it is no other order. Nor does a look at one
// event read the table. Seen to fail with a claim that looks through the table: 16 times as much; and with inbox_state
// as it was before it asked by the key.
func TestALargeInboxCostsTheSamePerEvent(t *testing.T) {
	harness.Full(t)
	rows, events, most := count(200_000, *large), count(2_000, 60_000), float64(count(30, 12))/10
	kafka := harness.Kafka(t)
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	pg.Exec(t, effects)
	cost := func(what string, from int) float64 {
		topic := kafka.Topic(t, "order", 6, nil)
		preloadFrom(t, kafka.Addrs, topic, from, events)
		before, beforePostgres, began := ownCPU(t), postgresCPU(t, pg), time.Now()
		_, stop := start(t, newPool(t, pg.URL, 6), inbox.Config{Group: harness.Unique(t, "billing"), Brokers: kafka.Addrs,
			Topics: []string{topic}}, onOrder)
		quicklyUntil(t, pg, "SELECT sum(next_offset) FROM inbox_offset WHERE topic = '"+topic+"'", strconv.Itoa(events))
		got := consumed{events, time.Since(began), ownCPU(t) - before, postgresCPU(t, pg) - beforePostgres}
		stop()
		t.Logf("%s: %v", what, got)
		return float64(got.client + got.postgres)
	}
	cost("first, to be warm", 0)
	small := cost("a small inbox", events)
	conn := pg.Connect(t)
	for statement := range strings.SplitSeq(fmt.Sprintf(fill, rows), ";") { // VACUUM stands alone
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	lookUp(t, pg)
	largest := cost(fmt.Sprintf("%d rows more", rows), 2*events)
	again := cost("once more", 3*events)
	judge(t, pg, 4*events)
	if ratio := min(largest, again) / small; ratio > most {
		t.Errorf("CPU per event with %d rows: got %.2f times that of a small inbox, want at most %.1f", rows, ratio, most)
	} else {
		t.Logf("CPU per event with %d rows: %.2f and %.2f times that of a small inbox", rows, largest/small, again/small)
	}
}

// lookUp asks for events of every kind: known, in capitals, unknown, and with an id that is not a uuid. At night a call
// takes at most a millisecond.
func lookUp(t *testing.T, pg *harness.PG) {
	t.Helper()
	tx, err := pg.Connect(t).Begin(t.Context()) // other sessions count what they did seconds later
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"01900000-0000-7000-8000-000000000007": "done", "01900000-0000-7000-8000-00000000000A": "done",
		"01900000-ffff-7000-8000-000000000007": "", "ord-7": "",
	} {
		const calls = 1000
		began := time.Now()
		for range calls {
			var got string
			err := tx.QueryRow(t.Context(), "SELECT coalesce(inbox_state('billing', $1), '')", id).Scan(&got)
			if err != nil || got != want {
				t.Fatalf("state of %s: got %q, %v, want %q", id, got, err, want)
			}
		}
		each := time.Since(began) / calls
		t.Logf("a look at %s takes %v", id, each)
		if count(0, 1) == 1 && each > time.Millisecond {
			t.Errorf("a look at %s: got %v, want at most 1 ms", id, each)
		}
	}
	if _, err := tx.Exec(t.Context(),
		"SELECT inbox_wait('billing', '01900000-ffff-7000-8000-000000000007', '20 ms')"); err != nil {
		t.Fatal(err)
	}
	var scans int64
	err = tx.QueryRow(t.Context(),
		"SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'inbox_event'").Scan(&scans)
	if err != nil || scans != 0 {
		t.Errorf("scans of the whole table: got %d, %v, want none", scans, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
}
