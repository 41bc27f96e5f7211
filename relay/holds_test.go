package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const statusOf = "SELECT string_agg(s.status, ' ' ORDER BY o.seq) FROM outbox_events o JOIN outbox_events_status s " +
	"USING (id) WHERE o.aggregate_id = "

// retry.on_dead: hold, and the broker refuses an event. Breaks it catches: followers that go on without a person (seen
// to fail so), that are not parked, or whose status is another; a start that forgets the lane, also one with no
// follower parked; other keys that wait; a lane that the decision does not free, or frees out of order.
func TestLaneOfADeadEventWaitsForAPerson(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.Retry.OnDead = config.OnDeadHold
	if err := b.broker.Cluster().CreateTopic("outbox.event.small", 2,
		map[string]string{"max.message.bytes": "3000"}); err != nil {
		t.Fatal(err)
	}
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	large := `"` + strings.Repeat("x", 7000) + `"`
	b.pg.Exec(t, insert("small", "a", `{"n": 1}`, "")+insert("small", "a", large, "")+insert("small", "a", `{"n": 2}`,
		"")+insert("small", "a", `{"n": 3}`, "")+
		insert("small", "lone", large, "")+insert("small", "b", `{"n": 4}`, "")+insert("small", "", large,
		"")+insert("small", "", `{"n": 5}`, ""))
	b.waitDead(3)
	b.waitRecorded(3)
	b.pg.WaitConfirmed(t, b.c.Postgres.Slot, 10*time.Second)
	b.waitQuery("status of a key's events", statusOf+"'a'", "published failed blocked blocked")
	b.waitReady(r)
	mustStop(t, stop)

	r, stop = b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, insert("small", "a", `{"n": 6}`, "")+insert("small", "lone", `{"n": 7}`, "")+insert("small", "b",
		`{"n": 8}`, ""))
	b.waitRecorded(4)
	b.waitQuery("parked", "SELECT count(*) FROM cdc_relay_parked WHERE error_class = 'blocked'", "4")
	b.pg.Exec(t, "UPDATE cdc_relay_parked SET next_retry_at = now()") // a person is impatient
	b.staysParked("4")
	b.pg.Exec(t, "UPDATE outbox_events_dlq SET discarded_at = now() WHERE convert_from(key, 'UTF8') = 'a'")
	r.Revisit("outbox.event.small", "a")
	b.waitRecorded(7)
	b.staysParked("1")
	b.pg.Exec(t, "UPDATE outbox_events_dlq SET discarded_at = now() WHERE convert_from(key, 'UTF8') = 'lone'")
	r.Revisit("outbox.event.small", "lone")
	b.waitRecorded(8)
	b.waitNoneHeld(r)
	b.pg.Exec(t, insert("small", "a", `{"n": 9}`, ""))
	b.waitRecorded(9)
	mustStop(t, stop)
	wantKeys(t, b.values("outbox.event.small"), map[string][]string{
		"a": {`{"n": 1}`, `{"n": 2}`, `{"n": 3}`, `{"n": 6}`, `{"n": 9}`}, "b": {`{"n": 4}`, `{"n": 8}`}, "": {`{"n": 5}`},
		"lone": {`{"n": 7}`},
	})
}

// staysParked fails if the number of parked events is not, or does not stay, that.
func (b *bed) staysParked(want string) {
	b.t.Helper()
	for range 10 {
		if got := b.pg.Query(b.t, "SELECT count(*) FROM cdc_relay_parked"); got != want {
			b.t.Fatalf("parked: got %s, want it to stay %s", got, want)
		}
	}
}

// The event cannot be a message, so that the sink never sees it. Breaks it catches: an event behind it, of the same
// read, that is sent before its dead letter holds the lane (seen to fail without the hold before it is submitted); one
// in front of it that stays parked.
func TestLaneOfAnEventThatIsNoMessageWaitsForAPerson(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	b := newBed(t)
	b.c.Retry.OnDead = config.OnDeadHold
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	for round := range 5 {
		from := 100*round + 1
		b.pg.Exec(t, "BEGIN; "+many(from, 60, 3)+insert("order", "k1", `{"n": 0}`, "[]")+many(from+60, 40, 3)+"COMMIT")
		b.waitDead(round + 1)
		b.waitQuery("what is in front of the dead event is published", fmt.Sprintf(
			"SELECT count(*) FROM outbox_events o JOIN cdc_relay_journal j ON j.event_id = o.id WHERE aggregate_id = 'k1' "+
				"AND (payload->>'n')::int BETWEEN %d AND %d", from, from+59), "20")
		b.waitQuery("what is behind it is parked", "SELECT count(*) FROM cdc_relay_parked", fmt.Sprint(b.pg.Query(t,
			fmt.Sprintf("SELECT count(*) FROM outbox_events WHERE aggregate_id = 'k1' AND (payload->>'n')::int BETWEEN %d "+
				"AND %d", from+60, from+99))))
		b.pg.Exec(t, "UPDATE outbox_events_dlq SET discarded_at = now()")
		r.Revisit("outbox.event.order", "k1")
		b.waitRecorded(100 * (round + 1))
		b.waitNoneHeld(r)
	}
	mustStop(t, stop)
	b.wantNumbers("outbox.event.order", 500)
}

// An event dies while nothing waits for dead letters, and again, replayed, under retry.on_dead: hold. Breaks it
// catches: a lane that goes on behind it (seen to fail with a dead letter that keeps what it was); one that a request
// to discard it does not free, or one that was asked for before the start of a relay.
func TestReplayedEventThatDiesAgainHoldsItsLane(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var brokers []*judgeful // one for each start
	start := func() (*relay.Relay, func() error) {
		j := newJudgeful(func(value []byte, _ int) *sink.Reason {
			if is(value, 2) || is(value, 5) {
				return never
			}
			return nil
		})
		brokers = append(brokers, j)
		r, stop := b.startWith(j)
		b.waitRole(r, relay.RoleActive)
		return r, stop
	}
	_, stop := start()
	b.pg.Exec(t, many(1, 3, 1))
	b.waitDead(1)
	b.waitRecorded(2)
	mustStop(t, stop)

	b.c.Retry.OnDead = config.OnDeadHold
	r, stop := start()
	b.waitExecuted(b.ask(store.RequestReplay, store.Filter{All: true}))
	b.waitQuery("the dead letter holds its lane", "SELECT count(*) FROM outbox_events_dlq WHERE holds", "1")
	b.pg.Exec(t, many(4, 1, 1))
	b.waitQuery("what comes for its key is parked", "SELECT count(*) FROM cdc_relay_parked WHERE error_class = 'blocked'",
		"1")
	b.staysParked("1")
	b.waitExecuted(b.ask(store.RequestDiscard, store.Filter{All: true}))
	b.waitRecorded(3)
	b.waitNoneHeld(r)

	b.pg.Exec(t, many(5, 2, 1))
	b.waitDead(2)
	b.waitQuery("what is behind it is parked", "SELECT count(*) FROM cdc_relay_parked", "1")
	mustStop(t, stop)
	id := b.ask(store.RequestDiscard, store.Filter{All: true})
	r, stop = start()
	b.waitExecuted(id)
	b.waitRecorded(4)
	b.waitNoneHeld(r)
	mustStop(t, stop)
	for i, want := range [][]int{{1, 3}, {4}, {6}} {
		if got := brokers[i].numbers(t)["k0"]; !slices.Equal(got, want) {
			t.Errorf("events in the topic by start %d: got %v, want %v", i+1, got, want)
		}
	}
}
