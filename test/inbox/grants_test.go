package inbox

import (
	"context"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A role with the grants of docs/inbox.md, and none beside them but for its handlers' table, does all that a consumer
// does: handle, park, give up, replay, discard, wait, forget. Seen to fail without rights on inbox_parked.
func TestTheGrantsOfTheDocsAreEnough(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := newInbox(t)
	pg.Exec(t, effects)
	text, err := os.ReadFile("../../docs/inbox.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := regexp.MustCompile(`(?m)^GRANT .*;$`).FindAllString(string(text), -1)
	if len(grants) != 2 {
		t.Fatalf("grants in docs/inbox.md: got %d, want 2", len(grants))
	}
	role := harness.Unique(t, "billing")
	pg.Exec(t, "CREATE ROLE "+role+" LOGIN")
	pg.Exec(t, "REVOKE ALL ON SCHEMA public FROM PUBLIC; GRANT INSERT ON effect TO "+role)
	for _, grant := range grants {
		pg.Exec(t, strings.Replace(grant, " TO billing", " TO "+role, 1))
	}
	at, err := url.Parse(pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.User(role)
	addrs, topic := topicOf(t, 1)
	log := &harness.Log{}
	var well atomic.Bool
	pool := newPool(t, at.String(), 4)
	c, stop := start(t, pool, inbox.Config{
		Brokers: addrs, Topics: []string{topic}, SkipMigration: true, Log: newLog(log),
		Retry: inbox.Retry{MaxAttempts: 2, InitialBackoff: time.Millisecond, ParkAfter: 1},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Fails != "" && !well.Load() {
				return errors.New("not now")
			}
			return apply(ctx, tx, e)
		})
	})
	const first, second = "019aa7e4-0000-7000-8000-000000000001", "019aa7e4-0000-7000-8000-000000000002"
	produce(t, addrs, event(topic, 0, 1), eventOf(topic, "a", first, payload{Seq: 1, Fails: "at first"}),
		eventOf(topic, "b", second, payload{Seq: 2, Fails: "at first"}), eventOf(topic, "c", "ord-7", payload{Seq: 3}))
	until(t, pg, "SELECT count(*) FROM inbox_dead", "2")
	well.Store(true)
	if done, err := c.Replay(t.Context(), first, "alice", ""); err != nil || !done {
		t.Errorf("replay: got %v, %v", done, err)
	}
	if done, err := c.Discard(t.Context(), second, "alice", ""); err != nil || !done {
		t.Errorf("discard: got %v, %v", done, err)
	}
	if got, err := inbox.WaitHandled(t.Context(), pool, "", "billing", first); err != nil || got != "done" {
		t.Errorf("wait: got %q, %v", got, err)
	}
	until(t, pg, "SELECT string_agg(seq::text, ' ' ORDER BY seq) FROM effect", "0 1 3")
	until(t, pg, "SELECT forgot_at > '-infinity' FROM inbox_consumer", "true")
	ready(t, c)
	stop()
	if text := log.String(); strings.Contains(text, "permission denied") {
		t.Errorf("the log is\n%s", text)
	}
	pg.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role)
}
