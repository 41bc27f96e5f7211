package inbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// incompressible is text of so many bytes that Postgres cannot store in less.
func incompressible(bytes int) string {
	raw := make([]byte, bytes)
	for i := range raw {
		raw[i] = byte(' ' + 1 + rand.IntN(94))
	}
	return string(raw)
}

// A topic may hold what no relay has written: keys that an index cannot hold, ids and names that are no text. Breaks it
// catches: a partition that stands still before such a message, one that is handled under another's id, an order that a
// long key does not have. Seen to fail with the key as its lane's name, with ids and header names stored as they are,
// with an id's length not looked at, and with SQL that has its own names of lanes.
func TestNoMessageStopsItsPartition(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	long := incompressible(10_000)
	of := func(n int, key, id string, more ...kgo.RecordHeader) *kgo.Record {
		fails := ""
		if key == long && n == 0 {
			fails = "until well"
		}
		r := eventOf(topic, key, id, payload{n, fails})
		r.Headers = append(r.Headers, more...)
		return r
	}
	id := func(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }
	odd := kgo.RecordHeader{Key: "\xff\x00", Value: []byte{0xff, 0}}
	unfit := []*kgo.Record{
		of(100, "a", "no text \xff"),
		of(101, "a", "no text \x00"),
		of(102, "a", incompressible(2689)),
		of(103, "a", "7", kgo.RecordHeader{Key: "x-outbox-source", Value: []byte("1/1/\xfe")}),
		of(104, "a", "no text \xff", odd),
		of(105, "a", id(105), odd, kgo.RecordHeader{Key: "event_type", Value: []byte("none \xff\x00")}),
	}
	produce(t, addrs, of(0, long, id(0), odd), of(1, long, id(1)))
	produce(t, addrs, unfit...)
	produce(t, addrs, of(2, "a", incompressible(2688)), of(3, long, id(3)))
	var well atomic.Bool
	register := func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails != "" && !well.Load() {
				return errors.New("not now")
			}
			_, err := tx.Exec(ctx, "INSERT INTO effect (key, seq) VALUES (md5($1::bytea), $2)", e.Key, e.Payload.Seq)
			return err
		})
	}
	config := inbox.Config{Brokers: addrs, Topics: []string{topic}, Unknown: inbox.Dead, Retry: inbox.Retry{
		MaxAttempts: 1000, InitialBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond, ParkAfter: 2,
	}}
	_, stop := start(t, newPool(t, pg.URL, 6), config, register)
	until(t, pg, "SELECT sum(next_offset) FROM inbox_offset", fmt.Sprint(4+len(unfit)))
	until(t, pg, "SELECT count(*) FROM inbox_dead WHERE class = 'permanent'", fmt.Sprint(len(unfit)))
	until(t, pg, "SELECT string_agg(seq::text, ' ') FROM effect", "2")
	until(t, pg, "SELECT count(*) FROM inbox_parked", "3")
	if got := pg.Query(t, `SELECT string_agg(error, '; ') FILTER (WHERE error NOT LIKE 'its %' AND error NOT LIKE
		'no handler for type %') IS NULL FROM inbox_dead`); got != "true" {
		t.Error("a dead letter does not say why it is one")
	}
	if got := pg.Query(t, `SELECT string_agg(encode(h.value, 'hex'), ' ') FROM inbox_dead d,
		unnest(header_names, header_values) AS h (name, value) WHERE "offset" = 2 AND name = 'id'`); got !=
		hex.EncodeToString([]byte("no text \xff")) {
		t.Errorf("the id of a dead letter, as it came: got %s", got)
	}
	key := "'" + hex.EncodeToString([]byte(long)) + "'"
	claim := fmt.Sprintf("SELECT inbox_claim('billing', 'other', '%s', 0, decode(%s, 'hex'))", topic, key)
	if got := pg.Query(t, claim); got != "behind" {
		t.Errorf("a claim for the long key in SQL: got %s, want behind", got)
	}
	if got := pg.Query(t, fmt.Sprintf(`SELECT inbox_park('billing', 'other', '%s', 0, 99, decode(%s, 'hex'), '{"seq": 4}',
		'{"id": "other", "event_type": "OrderPlaced"}', next_at => NULL)`, topic, key)); got != "true" {
		t.Errorf("parked in SQL: got %s", got)
	}
	well.Store(true)
	until(t, pg, "SELECT count(*) FROM inbox_parked", "0")
	stop()
	if got := pg.Query(t, "SELECT string_agg(seq::text, ' ' ORDER BY n) FROM effect"); got != "2 0 1 3 4" {
		t.Errorf("effects: got %s, want 2 0 1 3 4", got)
	}
	if got := pg.Query(t, "SELECT count(DISTINCT key) FROM effect"); got != "2" {
		t.Errorf("keys of the effects: got %s, want 2", got)
	}
}
