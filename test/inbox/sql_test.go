package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// newInbox is a database with an empty inbox.
func newInbox(t *testing.T) *harness.PG {
	t.Helper()
	pg := harness.Postgres(t)
	if err := inbox.Migrate(t.Context(), newPool(t, pg.URL, 2), "public"); err != nil {
		t.Fatal(err)
	}
	return pg
}

// A claim of any number of events, new and decided in any mix, enters the new ones and names the others, each once.
// Seen to fail with a claim of many that returns when one of them is decided, and with one that leaves out what is new.
func TestClaimsEnterWhatIsNewAndNameTheRest(t *testing.T) {
	t.Parallel()
	pg := newInbox(t)
	conn := pg.Connect(t)
	pg.Exec(t, "SELECT inbox_register('billing')")
	decided := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var ids []string
		var want []int
		for range 1 + rng.IntN(40) {
			id := fmt.Sprintf("e%d", rng.IntN(4000))
			if slices.Contains(ids, id) {
				continue
			}
			if ids = append(ids, id); decided[id] {
				want = append(want, len(ids))
			}
			decided[id] = true
		}
		rows, err := conn.Query(t.Context(), `SELECT place FROM inbox_claim_events(1::smallint, 'billing',
			pg_postmaster_start_time(), inbox_file(), '{}', '{}', '{}', '{}', '{}', '{}',
			array_fill(0::smallint, ARRAY[cardinality($1::text[])]), $1) ORDER BY place`, ids)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("claim of %v: got %v, %v, want %v decided", ids, got, err, want)
		}
	}
	if got, want := pg.Query(t, "SELECT count(*) FROM inbox_event"), strconv.Itoa(len(decided)); got != want {
		t.Errorf("events: got %s, want %s", got, want)
	}
}

// Claims that are rolled back use up no numbers, however many there are. Seen to fail with numbers of a sequence: the
// second claim was "nextval: reached maximum value of sequence".
func TestRolledBackClaimsUseUpNoNumbers(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := newInbox(t)
	pg.Exec(t, `ALTER TABLE inbox_consumer ALTER consumer RESTART WITH 32767;
		ALTER TABLE inbox_source ALTER source RESTART WITH 32767`)
	conn := pg.Connect(t)
	for range 3 {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got string
		err = tx.QueryRow(t.Context(), "SELECT inbox_claim('billing', '7', source_name => 'shop')").Scan(&got)
		if err != nil || got != "new" {
			t.Fatalf("claim: got %q, %v, want new", got, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, consumer := range []string{"billing", "shipping"} {
		if got := pg.Query(t, "SELECT inbox_claim('"+consumer+"', '7', source_name => 'shop')"); got != "new" {
			t.Errorf("claim of %s: got %q, want new", consumer, got)
		}
	}
	if got := pg.Query(t, `SELECT string_agg(n.consumer || ' ' || e.source, ', ' ORDER BY 1) FROM inbox_consumer n
		JOIN inbox_event e USING (consumer)`); got != "1 1, 2 1" {
		t.Errorf("numbers: got %q, want 1 1, 2 1", got)
	}
}

// Arguments that would be taken for something else are refused, and the error says what is wrong with them. Seen to
// fail with the functions as they were: each was taken.
func TestWrongArgumentsInSQLAreRefused(t *testing.T) {
	t.Parallel()
	pg := newInbox(t)
	pg.Exec(t, "SELECT inbox_register('billing')")
	for call, want := range map[string]string{
		"inbox_claim('billing', '')":                                          "id of the event is empty",
		"inbox_claim('billing', NULL)":                                        "id of the event is empty",
		"inbox_claim('', '7')":                                                "name of the consumer is empty",
		"inbox_claim(NULL, '7')":                                              "name of the consumer is empty",
		"inbox_claim('billing', '7', source_name => NULL)":                    "source_name is NULL",
		`inbox_park('billing', '', 'orders', 0, 0, NULL, NULL)`:               "id of the event is empty",
		"inbox_forget('billing', '-1 day')":                                   "not negative",
		"inbox_forget('billing', NULL)":                                       "not negative",
		"inbox_forget('billing', '1 day', 0)":                                 "blocks is at least 1",
		`inbox_rewind('billing', 'orders', 0, -1)`:                            "offset is -1",
		"inbox_register('')":                                                  "name of the consumer is empty",
		`inbox_park('billing', NULL, 'orders', 0, 0, NULL, NULL)`:             "id of the event is empty",
		`inbox_park('', '7', 'orders', 0, 0, NULL, NULL)`:                     "name of the consumer is empty",
		"inbox_forget('no such consumer', '1 day')":                           "no consumer is named",
		"inbox_replay('no such consumer', '7')":                               "no consumer is named",
		`inbox_rewind('no such consumer', 'orders', 0, 0)`:                    "no consumer is named",
		"inbox_forget('billing', '1 day', 128, pause => NULL)":                "pause NULL",
		"inbox_wait('billing', '', '0')":                                      "",
		"inbox_state('billing', '')":                                          "",
		"inbox_discard('billing', '')":                                        "",
		"inbox_done('billing', '019aa7e4-0000-7000-8000-000000000001')":       "",
		"inbox_failed('billing', '7', 'no such customer', source_name => '')": "",
	} {
		_, err := pg.TryQuery(t.Context(), "SELECT coalesce("+call+"::text, '')")
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: got %v, want no error", call, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: got %v, want %q", call, err, want)
		}
	}
}

// Events whose ids are not uuids are found without the name of their source, by every function; where two sources have
// the id, the error says so. A dead letter that is replayed is marked for the program that takes it, and still is after
// it has failed again. Seen to fail with functions that take "no name" for a source of that name, and without the
// marks.
func TestIDsThatAreNotUUIDsAreFoundWithoutTheirSource(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := newInbox(t)
	is := func(sql, want string) {
		t.Helper()
		if got, err := pg.TryQuery(t.Context(), "SELECT "+sql); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", sql, got, err, want)
		}
	}
	is(`inbox_park('billing', 'ord-7', 'orders', 0, 7, '\x6b', '{}', source_name => '1/shop')`, "true")
	is("inbox_state('billing', 'ord-7')", "parked")
	is("inbox_wait('billing', 'ord-7', '1 ms')", "parked")
	is("inbox_failed('billing', 'ord-7', 'no such customer', NULL)", "true")
	is("inbox_state('billing', 'ord-7')", "dead")
	is("inbox_replay('billing', 'ord-7', 'alice')", "true")
	marked := `(SELECT (headers ->> 'x-outbox-replay') || (headers ->> 'x-outbox-late') FROM inbox_take('billing'))`
	is(marked, "11")
	is("inbox_failed('billing', 'ord-7', 'no such customer', now())", "true")
	is(marked, "11")
	is("inbox_done('billing', 'ord-7')", "true")
	is("inbox_state('billing', 'ord-7')", "done")
	is(`inbox_park('billing', 'ord-8', 'orders', 0, 8, '\x6b', '{}', source_name => '1/shop')`, "true")
	is("(SELECT headers FROM inbox_take('billing'))", "")
	is("inbox_discard('billing', 'ord-8')", "true")
	is("inbox_claim('billing', 'ord-8', source_name => '2/shop')", "new")
	is("inbox_state('billing', 'ord-8', '2/shop')", "done")
	is("inbox_state('billing', 'ord-8', '1/shop')", "discarded")
	is("(SELECT count(*) FROM inbox_source)", "2")
	_, err := pg.TryQuery(t.Context(), "SELECT inbox_state('billing', 'ord-8')")
	if err == nil || !strings.Contains(err.Error(), "several sources") {
		t.Errorf("an id of two sources: got %v, want an error that says so", err)
	}
}

// Dead letters that were decided are forgotten after the time for which ids are kept; open ones, and those that were
// just decided, stay. Seen to fail with inbox_forget as it was: all stayed.
func TestDecidedDeadLettersAreForgotten(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := newInbox(t)
	for n := range 5 {
		pg.Exec(t, fmt.Sprintf(`SELECT inbox_park('billing', 'e%d', 'orders', 0, %d, NULL, '{}')`, n, n))
		pg.Exec(t, fmt.Sprintf(`SELECT inbox_failed('billing', 'e%d', 'no such customer')`, n))
	}
	pg.Exec(t, `SELECT inbox_discard('billing', 'e1'), inbox_discard('billing', 'e2'), inbox_replay('billing', 'e3');
		UPDATE inbox_dead SET discarded_at = now() - interval '15 days' WHERE event_id = 'e1';
		UPDATE inbox_dead SET replayed_at = now() - interval '15 days' WHERE event_id = 'e3';
		UPDATE inbox_dead SET dead_at = now() - interval '1 year'`)
	pg.Exec(t, "SELECT inbox_forget('billing', '14 days')")
	if got := pg.Query(t, "SELECT string_agg(event_id, ' ' ORDER BY event_id) FROM inbox_dead"); got != "e0 e2 e4" {
		t.Errorf("dead letters: got %q, want e0 e2 e4", got)
	}
}

// A header that is not text does not keep programs in other languages from what is parked. Seen to fail with
// convert_from alone: inbox_take returned an error, each time.
func TestHeadersThatAreNotTextStopNothing(t *testing.T) {
	t.Parallel()
	pg := newInbox(t)
	pg.Exec(t, `SELECT inbox_park('billing', 'e1', 'orders', 0, 1, NULL, '{}', '{"a": "b", "n": "null"}',
			next_at => now());
		UPDATE inbox_parked SET header_names = header_names || '{odd,zero,none}'::text[],
			header_values = header_values || ARRAY['\xff00'::bytea, '\x00', NULL]`)
	if got := pg.Query(t, "SELECT headers FROM inbox_take('billing')"); got !=
		`{"a": "b", "n": "null", "odd": "\\377\\000", "none": null, "zero": "\\000"}` {
		t.Errorf("headers: got %s", got)
	}
}

// A database in LATIN1 holds events whatever characters their ids, types, headers and errors have: they are handled
// once, parked, given up, found and replayed like others, and the handler sees the message as it came. Seen to fail
// with texts that are stored as they are: nothing was decided, for "an outage".
func TestADatabaseWithoutUnicodeHoldsEveryEvent(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.PostgresIn(t, "LATIN1")
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	odd := kgo.RecordHeader{Key: "Łódź", Value: []byte("了")}
	uuid := func(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }
	records := []*kgo.Record{
		eventOf(topic, "a", "了-1", payload{Seq: 1}),
		eventOf(topic, "a", "Zoë-2", payload{Seq: 2}),
		eventOf(topic, "b", uuid(3), payload{Seq: 3, Fails: "parked"}),
		eventOf(topic, "c", uuid(4), payload{Seq: 4, Fails: "dead"}),
		ofType(eventOf(topic, "d", uuid(5), payload{Seq: 5}), "了Placed"),
		eventOf(topic, "a", "了-1", payload{Seq: 1}), // again
	}
	for _, r := range records {
		r.Headers = append(r.Headers, odd, kgo.RecordHeader{Key: "x-outbox-source", Value: []byte("1/1/了")})
	}
	produce(t, addrs, records...)
	var well atomic.Bool
	pool := newPool(t, pg.URL+"&client_encoding=UTF8", 4)
	c, _ := start(t, pool, inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Unknown: inbox.Dead,
		Retry: inbox.Retry{
			MaxAttempts: 1 << 20, InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, ParkAfter: 1,
		},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if value, there := e.Header("Łódź"); !there || string(value) != "了" {
				return inbox.Permanent(errors.New("the header is gone"))
			}
			switch {
			case e.Payload.Fails == "" || well.Load():
				_, err := tx.Exec(ctx, "INSERT INTO effect (key, event, seq) VALUES ($1, md5($2), $3)", string(e.Key),
					fmt.Sprintf("%x", e.ID), e.Payload.Seq)
				return err
			case e.Payload.Fails == "dead":
				return inbox.Permanent(errors.New("no customer 了"))
			}
			return errors.New("not now, 了")
		})
	})
	until(t, pg, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM effect", "1 2")
	until(t, pg, "SELECT count(*) FROM inbox_dead WHERE class = 'permanent'", "2")
	until(t, pg, `SELECT string_agg(error, ' ') FROM inbox_parked WHERE attempts > 2`, `\u:not now, \u4e86`)
	well.Store(true)
	for id, want := range map[string]string{"了-1": "done", "Zoë-2": "done", uuid(3): "done"} {
		if got, err := inbox.WaitHandled(t.Context(), pool, "public", "billing", id); err != nil || got != want {
			t.Errorf("event %s: got %q, %v, want %s", id, got, err, want)
		}
	}
	if done, err := c.Replay(t.Context(), uuid(4), "alice", "了 is there now"); err != nil || !done {
		t.Errorf("replay: got %v, %v", done, err)
	}
	until(t, pg, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM effect", "1 2 3 4")
}
