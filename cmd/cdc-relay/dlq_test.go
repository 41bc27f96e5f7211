package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// planted are so many dead letters over 50 keys, with the numbers 1 to n in the order of their positions, told in
// another order. Their texts would do something to a terminal.
const planted = `INSERT INTO outbox_events_dlq (source, original_id, aggregate_type, aggregate_id, event_type,
 payload, created_at, topic, key,
 position, epoch, from_stream, position_order, position_index, attempts, error_class, error_code, last_error)
SELECT s.source, ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'order', 'k' || i %% 50, 'made',
 jsonb_build_object('n', i), now(), 'outbox.event.order',
 convert_to('k' || i %% 50, 'UTF8'), '0/1/' || i, 0, true, 1, i, 2, 'permanent', 'PLANTED',
 E'said \x1b[31mred\x1b[0m\nand more'
FROM generate_series(1, %d) i, cdc_relay_source s ORDER BY md5(i::text)`

func plantedID(n int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }

// ready waits until the relay's first start is through, so that its tables know its slot.
func (s services) ready(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "the relay streams", func(context.Context) string {
		if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_state WHERE phase = 'stream'"); n != "1" {
			return "no state with phase stream"
		}
		return ""
	})
}

// Breaks it catches: a command that does not say what it does, or takes more or less than was chosen; pages that do not
// go on; a discard that no one confirmed; escape sequences of an event on a terminal; a request that is not kept for
// later. Seen to fail with control characters printed as they are, a single discard not asked about, keys not looked
// at, and a list that ends with its second page.
func TestDeadLettersByCommand(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	run := func(args ...string) outcome { return cdcRelay(t, s.environ, args...) }
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.ready(t)
	run("dlq", "list").want(t, exitDone, []string{"no dead letters"}, nil)
	run("dlq", "replay", "--all").want(t, exitDone, []string{"no dead letters match"}, nil)
	run("parked", "list").want(t, exitDone, []string{"nothing is parked"}, nil)
	run("retry", "now", "--all").want(t, exitDone, []string{"no parked events match"}, nil)
	s.pg.Exec(t, fmt.Sprintf(planted, 120))

	first := run("dlq", "list", "--limit", "2")
	first.want(t, exitDone, []string{"ID", "PLANTED", "outbox.event.order", "made", "open", "more: --after "}, nil)
	var page store.Page[store.DeadLetter]
	seen := 0
	for after := ""; ; after = page.Next {
		o := run("dlq", "list", "--json", "--limit", "50", "--after", after)
		page = store.Page[store.DeadLetter]{}
		if err := json.Unmarshal([]byte(o.out), &page); err != nil {
			t.Fatalf("%v in %s %s", err, o.out, o.errors)
		}
		if seen += len(page.Items); page.Next == "" {
			break
		}
	}
	if seen != 120 {
		t.Errorf("listed in pages of 50: got %d, want 120", seen)
	}
	run("dlq", "show", plantedID(7)).want(t, exitDone,
		[]string{plantedID(7), `payload      {"n": 7}`, "PLANTED (permanent): said", "!\x1b", "k7", "after 2 attempts"}, nil)
	run("dlq", "show", plantedID(7), "--json").want(t, exitDone, []string{`"payload_encoding": "json"`, `"n": 7`}, nil)
	run("dlq", "show", plantedID(777)).want(t, exitFailed, []string{"!{"}, []string{"no dead letter"})

	run("dlq", "discard", plantedID(7)).want(t, exitUsage, nil, []string{"--yes"})
	run("dlq", "discard", "--yes").want(t, exitUsage, nil, []string{"nothing is chosen", "--all"})
	run("dlq", "replay", "--older-than", "soon", "--all").want(t, exitUsage, nil, []string{"--older-than", "24h"})
	run("dlq", "list", "nonsense").want(t, exitUsage, nil, []string{"no event can be chosen like this: id: found", "uuid"})
	run("dlq", "list", "--limit", "0").want(t, exitUsage, nil, []string{"--limit"})
	if n := s.pg.Query(t, "SELECT count(*) FROM cdc_relay_request"); n != "0" {
		t.Errorf("requests so far: got %s, want none", n)
	}
	run("dlq", "discard", plantedID(7), plantedID(8), "--yes", "--note", "test data", "--who", "ann").want(t, exitDone,
		[]string{"discard: 2 of 2 dead letters discarded"}, nil)
	if until := s.pg.Query(t, "SELECT bool_and(filter->>'until' IS NOT NULL) FROM cdc_relay_request"); until != "true" {
		t.Errorf("a request is bounded by when it was confirmed what it concerns: got %s, want true", until)
	}
	run("dlq", "list", "--state", "discarded").want(t, exitDone,
		[]string{plantedID(7), "discarded by ann", "!" + plantedID(9)}, nil)
	// 9, 59, 109
	run("dlq", "replay", "--key", "k9").want(t, exitDone, []string{"replay: 3 of 3 dead letters published"}, nil)
	run("dlq", "list", "--state", "replayed").want(t, exitDone, []string{plantedID(59), "replayed by " + cli.UserAtHost()},
		nil)

	run("pause", "--note", "a look").want(t, exitDone, []string{"pause: done"}, nil)
	cdcRelay(t, s.environ, "status", "--http-listen", r.address).want(t, exitDone,
		[]string{"not ready", "paused", cli.UserAtHost(), "a look"}, nil)
	run("resume").want(t, exitDone, []string{"resume: done"}, nil)
	cdcRelay(t, s.environ, "status", "--http-listen", r.address).want(t, exitDone, []string{"!paused"}, nil)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}

	run("dlq", "replay", "--all", "--note", "later").want(t, exitDone,
		[]string{"no relay is running on slot", "when one starts"}, nil)
	r = startRelay(t, s.environ)
	s.closed(t, 118)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}
}

// closed waits until so many dead letters are replayed.
func (s services) closed(t *testing.T, n int) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "dead letters are replayed", func(context.Context) string {
		if got := s.pg.Query(t,
			"SELECT count(*) FROM outbox_events_dlq WHERE replayed_at IS NOT NULL"); got != fmt.Sprint(n) {
			return fmt.Sprintf("%s are, want %d; parked: %s", got, n, s.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"))
		}
		return ""
	})
}

// Breaks it catches: a replay that is forgotten, or begun again with what was done, when the process is killed in the
// middle; events of a key out of order; more duplicates than could be in flight. Seen to fail with places of another
// order, and with requests left to the process that began them.
func TestReplayOfTenThousandSurvivesKill9(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	environ := append(s.environ, "CDC_RELAY_LIMITS_PARKED_EVENTS=3000", "CDC_RELAY_LIMITS_MAX_UNRECORDED=500")
	cdcRelay(t, environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, environ)
	s.ready(t)
	const n = 10_000
	s.pg.Exec(t, fmt.Sprintf(planted, n))
	cdcRelay(t, environ, "dlq", "replay", "--all", "--no-wait").want(t, exitDone,
		[]string{"request 1", "the relay runs it now"},
		nil)
	kills := 0
	for _, at := range []int{1000, 4000, 8000} {
		harness.Eventually(t, time.Minute, "the replay is on its way", func(context.Context) string {
			if s.pg.Query(t, fmt.Sprintf("SELECT done >= %d FROM cdc_relay_request", at)) != "true" {
				return "not yet"
			}
			return ""
		})
		if s.pg.Query(t, "SELECT finished_at IS NULL FROM cdc_relay_request") == "true" {
			kills++
		}
		r.stop(t, os.Kill)
		r = startRelay(t, environ)
	}
	s.closed(t, n)
	if kills == 0 {
		t.Error("the replay was over before it was killed: the test shows nothing")
	}
	request := s.pg.Query(t, "SELECT done || ' of ' || total || ' ' || (finished_at IS NOT NULL) FROM cdc_relay_request")
	if got := request; got != "10000 of 10000 true" {
		t.Errorf("request: got %s", got)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}
	seen, last, records := map[int]bool{}, map[string]int{}, 0
	harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(rec *kgo.Record) {
		var number int
		if _, err := fmt.Sscanf(string(rec.Value), `{"n": %d}`, &number); err != nil ||
			string(harness.Header(rec, "x-outbox-replay")) != "1" {
			t.Fatalf("value %q, x-outbox-replay %q: %v", rec.Value, harness.Header(rec, "x-outbox-replay"), err)
		}
		records++
		if seen[number] {
			return
		}
		seen[number] = true
		if key := string(rec.Key); number < last[key] {
			t.Errorf("key %s: %d came after %d", key, number, last[key])
		} else {
			last[key] = number
		}
	})
	if len(seen) != n || records > n+3*500 {
		t.Errorf("the topic holds %d of %d events in %d records, want all, and at most 500 duplicates for each of 3 kills",
			len(seen), n, records)
	}
	t.Logf("%d kills in the replay, %d duplicates", kills, records-n)
}

// Break it catches: output of commands that shows the password of postgres.url.
func TestRequestsOfCommandsShowNoSecret(t *testing.T) {
	environ := []string{"CDC_RELAY_POSTGRES_URL=postgres://ann:hunter2@127.0.0.1:1/d", "CDC_RELAY_POSTGRES_SLOT=s"}
	for _, args := range [][]string{{"dlq", "list"}, {"dlq", "show", "x"}, {"dlq", "replay", "--all"},
		{"dlq", "discard", "--all", "--yes"}, {"parked", "list"}, {"retry", "now", "--all"}, {"pause"}, {"resume"}} {
		o := cdcRelay(t, environ, args...)
		o.want(t, exitFailed, []string{"!hunter2"}, []string{"!hunter2", "127.0.0.1"})
		if strings.TrimSpace(o.out) != "" {
			t.Errorf("%v: got output %q without a database", args, o.out)
		}
	}
}
