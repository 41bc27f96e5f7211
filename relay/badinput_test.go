package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One transaction with good events and with every kind of event that cannot be a message. Breaks it catches: a
// neighbour that dies or waits with them, a dead letter without its event, code or place, a confirmed position that
// waits forever, a status view or counter that does not tell.
func TestEventsThatCannotBeMessagesDieAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Message.Topic = "{aggregate_type}"
	if err := b.broker.Cluster().CreateTopic("order", 3, nil); err != nil {
		t.Fatal(err)
	}
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)

	bad := map[string][]string{ // code -> statements
		"INVALID_HEADERS": {
			insert("order", "a", `{"bad": 1}`, `[]`), insert("order", "a", `{"bad": 2}`, `{"x": 1}`),
			insert("order", "a", `{"bad": 3}`, `{"x": {"y": "z"}}`),
			insert("order", "a", `{"bad": 4}`, `"text"`), insert("order", "a", `{"bad": 5}`, `null`),
			insert("order", "a", `{"bad": 6}`, `{"x": null}`),
		},
		"INVALID_TOPIC": {
			insert("", "a", `{"bad": 7}`, ""), insert(".", "a", `{"bad": 8}`, ""), insert("..", "a", `{"bad": 9}`, ""),
			insert("__consumer_offsets", "a", `{"bad": 10}`, ""),
			insert("a b", "a", `{"bad": 11}`, ""), insert("ü", "a", `{"bad": 12}`, ""),
			insert(strings.Repeat("x", 250), "a", `{"bad": 13}`, ""), insert("a\nb", "a", `{"bad": 14}`, ""),
		},
	}
	statements, good, dead := "", []string{}, 0
	for _, list := range bad {
		for _, statement := range list {
			dead++
			good = append(good, fmt.Sprintf(`{"n": %d}`, dead))
			statements += insert("order", "a", good[len(good)-1], `{"traceparent": "00-1"}`) + statement
		}
	}
	b.pg.Exec(t, "BEGIN; "+statements+"COMMIT")
	b.waitDead(dead)
	b.waitRecorded(len(good))
	wantKeys(t, b.values("order"), map[string][]string{"a": good})
	b.pg.WaitConfirmed(t, b.c.Postgres.Slot, 10*time.Second)

	for code, list := range bad {
		n := b.pg.Query(t,
			"SELECT count(*) FROM outbox_events_dlq WHERE error_code = '"+code+"' AND error_class = 'permanent'")
		if n != fmt.Sprint(len(list)) {
			t.Errorf("dead letters with %s: got %s, want %d", code, n, len(list))
		}
	}
	// The dead letter is the event as it was: nothing of it is lost even if the application deletes the row.
	same := b.pg.Query(t, `SELECT count(*) FROM outbox_events_dlq d JOIN outbox_events o ON o.id = d.original_id WHERE
		(d.aggregate_type, d.aggregate_id, d.event_type, d.payload, d.created_at) IS NOT DISTINCT FROM (o.aggregate_type,
			o.aggregate_id, o.event_type, o.payload, o.created_at)
		AND d.headers IS NOT DISTINCT FROM o.headers AND d.last_error <> ''
			AND d.position ~ '^[0-9A-F]+/[0-9A-F]+/[0-9]+$' AND d.from_stream
		AND d.position_index % 2 = 1 AND d.partition IS NULL AND d.attempts = 1`)
	if same != fmt.Sprint(dead) {
		t.Errorf("dead letters with the whole event and its place: got %s, want %d", same, dead)
	}
	if n := b.pg.Query(t, "SELECT count(DISTINCT position) FROM outbox_events_dlq"); n != fmt.Sprint(dead) {
		t.Errorf("positions: got %s different ones, want %d", n, dead)
	}
	failed := b.pg.Query(t,
		"SELECT count(*) FROM outbox_events_status WHERE status = 'failed' AND error_class = 'permanent' AND last_error "+
			"<> '' AND last_error_at IS NOT NULL")
	if failed != fmt.Sprint(dead) {
		t.Errorf("status view: got %s failed, want %d", failed, dead)
	}
	if n := metric(t, r, "outbox_failed_permanent_total", "class=permanent"); n != float64(dead) {
		t.Errorf("outbox_failed_permanent_total: got %v, want %d", n, dead)
	}
}

// Only the broker's topic says how large an event may be. Breaks it catches: neighbours in the same batch that die or
// are lost, followers of the same key that overtake or never come, a dead letter that does not say how large is too
// large.
func TestEventLargerThanTheTopicTakesDiesAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if err := b.broker.Cluster().CreateTopic("outbox.event.small", 2,
		map[string]string{"max.message.bytes": "3000"}); err != nil {
		t.Fatal(err)
	}
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	const before, after, keys, size = 100, 100, 20, 7000
	small := func(from, n int) string { return strings.ReplaceAll(many(from, n, keys), "'order'", "'small'") }
	b.pg.Exec(t, "BEGIN; "+small(1, before)+insert("small", "k7", `"`+strings.Repeat("x", size)+`"`, "")+small(before+1,
		after)+"COMMIT")
	b.waitDead(1)
	b.waitRecorded(before + after)
	b.wantNumbers("outbox.event.small", before+after)
	code, text := b.pg.Query(t, "SELECT error_code FROM outbox_events_dlq"), b.pg.Query(t, "SELECT last_error FROM "+
		"outbox_events_dlq")
	if code != "MESSAGE_TOO_LARGE" || !strings.Contains(text, "7") || !strings.Contains(text, "3000") {
		t.Errorf("dead letter: got %s, %q; want MESSAGE_TOO_LARGE with the event's size and the limit of 3000", code, text)
	}
	if n := b.pg.Query(t,
		"SELECT count(*) FROM outbox_events_dlq WHERE partition >= 0 AND topic = 'outbox.event.small' AND key = 'k7' AND "+
			"length(payload::text) > 7000"); n != "1" {
		t.Errorf("dead letters with topic, partition, key and payload: got %s, want 1", n)
	}
	// The lane is released: what comes later takes the straight way again.
	b.pg.Exec(t, small(before+after+1, 20))
	b.waitRecorded(before + after + 20)
	b.wantNumbers("outbox.event.small", before+after+20)
	if st := r.Status(); st.HeldLanes != 0 || !st.Ready {
		t.Errorf("status: got %d held keys, ready %v, want 0, true", st.HeldLanes, st.Ready)
	}
	if r.Status().LastError == "" {
		t.Error("the newest error: got none, want the event that died, or what came after it")
	}
}

// A column is renamed while the relay runs. Breaks it catches: rows taken without it, a halt that does not say how to
// repair it, a position confirmed past the first row that could not be read, what came before it kept back with it, a
// relay that stays halted when the configuration fits again.
func TestRenamedColumnHaltsUntilItIsRepaired(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 10, 3))
	b.waitRecorded(10)
	b.pg.Exec(t, many(11, 5, 3))
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME payload TO body")
	b.pg.Exec(t, strings.ReplaceAll(many(16, 5, 3), "payload", "body"))
	position := b.here()
	b.waitHalt(r, relay.HaltColumn, "payload", "outbox.columns.payload", "ALTER TABLE")
	b.waitRecorded(15)
	b.wantUnconfirmed(position)
	mustStop(t, stop)

	b.c.Outbox.Columns.Payload = "body"
	b.c.Outbox.CatchUp = true
	r, _ = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(20)
	b.wantNumbers("outbox.event.order", 20)
}

// Break it catches: a missing column that is noticed only when a row comes, or a relay that does not go on by itself
// when the column is back.
func TestStartWithMissingColumnWaitsForIt(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME event_type TO kind")
	r, _ := b.start()
	b.waitHalt(r, relay.HaltColumn, "event_type", "outbox.columns.event_type", "ALTER TABLE")
	if b.confirmed() != "" {
		t.Error("a slot was created though the outbox cannot be read")
	}
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME kind TO event_type")
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
}

// Break it catches: a publication that leaves out a column, rows or inserts taken as it is: what it hides is lost
// silently; on_halt: exit that does not end with the halt. The remedy is run as it stands, so it must be right.
func TestPublicationThatHidesSomethingHaltsWithItsRepair(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	name := b.c.Postgres.Publication
	for _, c := range []struct {
		what, create, says string
		since              int // version of Postgres that knows it
	}{
		{"a column list without the payload", "FOR TABLE outbox_events (id, aggregate_type, aggregate_id, event_type, " +
			"created_at) WITH (publish = 'insert')", "payload", 15},
		{"a row filter", "FOR TABLE outbox_events WHERE (event_type <> 'made') WITH (publish = 'insert')", "row filter", 15},
		{"no inserts", "FOR TABLE outbox_events WITH (publish = 'update')", "inserts", 0},
		{"another table", "FOR TABLE cdc_relay_state WITH (publish = 'insert')", "not in it", 0},
	} {
		if b.pg.Server.Version() < c.since {
			continue
		}
		b.pg.Exec(t, "ALTER TABLE outbox_events REPLICA IDENTITY FULL; DROP PUBLICATION IF EXISTS "+name+"; "+
			"CREATE PUBLICATION "+name+" "+c.create)
		b.c.OnHalt = "exit"
		r, stop := b.start()
		b.waitRole(r, relay.RoleStopping) // by itself
		halt, ok := errors.AsType[*relay.Halt](stop())
		if !ok || halt.Code != relay.HaltPublication || !strings.Contains(halt.Reason, c.says) {
			t.Fatalf("%s: Run: got %v, want halt publication that says %q", c.what, halt, c.says)
		}
		if b.confirmed() != "" {
			t.Fatalf("%s: a slot was created", c.what)
		}
		b.pg.Exec(t, strings.TrimPrefix(halt.Remedy, "run "))
	}
	b.c.OnHalt = "stay"
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
}

// corrupting is a proxy before Postgres that replaces, in what the server sends, one text by another of the same
// length.
func corrupting(t *testing.T, server, from, to string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() {
				defer func() { _ = upstream.Close() }()
				_, _ = io.Copy(upstream, client)
			}()
			go func() {
				defer func() { _ = client.Close() }()
				buffer := make([]byte, 64<<10)
				for {
					n, err := upstream.Read(buffer)
					if err != nil {
						return
					}
					if _, err := client.Write([]byte(strings.ReplaceAll(string(buffer[:n]), from, to))); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// A byte of one WAL message is changed on its way. Breaks it catches: a message that is skipped, a halt without the
// place and the bytes, a position confirmed past it, what came before it in the same read kept back.
func TestMalformedWALHaltsAndConfirmsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	u, err := url.Parse(b.pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	// A column's value is: Byte1 kind ('t' = text), Int32 length, bytes. Kind 'Z' does not exist.
	u.Host = corrupting(t, u.Host, "t\x00\x00\x00\x09corruptme", "Z\x00\x00\x00\x09corruptme")
	b.c.Postgres.ReplicationURL = u.String()
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	b.waitRecorded(5)
	b.pg.Exec(t, "BEGIN; "+many(6, 5, 3)+insert("order", "corruptme", `{"n": 11}`, "")+many(12, 5, 3)+"COMMIT")
	position := b.here()
	b.waitHalt(r, relay.HaltMalformedWAL, "in the transaction that committed at ", fmt.Sprintf("%x", "corruptme"))
	b.waitRecorded(10)
	b.wantUnconfirmed(position)
	mustStop(t, stop)
	b.wantUnconfirmed(position)

	b.c.Postgres.ReplicationURL = ""
	r, _ = b.start()
	b.waitRole(r, relay.RoleActive)
	b.waitRecorded(16)
	b.wantNumbers("outbox.event.order", 16)
}

// Break it catches: a relay that makes an outbox of its own at a misspelt name, or ends instead of saying what to do.
func TestMissingOutboxHaltsUntilItIsThere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.pg.Exec(t, "ALTER TABLE outbox_events RENAME TO elsewhere")
	r, _ := b.start()
	b.waitHalt(r, relay.HaltNotInitialised, "outbox_events", "init")
	b.pg.Exec(t, "ALTER TABLE elsewhere RENAME TO outbox_events")
	b.waitRole(r, relay.RoleActive)
}
