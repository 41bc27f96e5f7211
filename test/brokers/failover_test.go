package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// watched is a master of Redis, a replica, and Sentinels that fail over.
type watched struct {
	t         *testing.T
	servers   map[string]*harness.RedisServer // by address
	sentinel  *redis.SentinelClient
	addresses []string // of the Sentinels, as redis.url has them
}

const masterName = "main"

func newWatched(t *testing.T) *watched {
	t.Helper()
	master := harness.Redis(t)
	replica := harness.Redis(t, append([]string{"--replicaof"}, strings.Split(master.Addr, ":")...)...)
	w := &watched{t: t, servers: map[string]*harness.RedisServer{master.Addr: master, replica.Addr: replica}}
	for _, s := range harness.RedisSentinels(t, masterName, master) {
		w.addresses = append(w.addresses, "redis://"+s.Addr)
	}
	w.sentinel = redis.NewSentinelClient(&redis.Options{Addr: strings.TrimPrefix(w.addresses[0], "redis://"), Protocol: 2})
	t.Cleanup(func() { _ = w.sentinel.Close() })
	w.awaitReplica()
	return w
}

// master is the present one, and the other server.
func (w *watched) master() (master, other *harness.RedisServer) {
	w.t.Helper()
	addr, err := w.sentinel.GetMasterAddrByName(w.t.Context(), masterName).Result()
	if err != nil {
		w.t.Fatalf("ask for the master: %v", err)
	}
	for _, s := range w.servers {
		if s.Addr == strings.Join(addr, ":") {
			master = s
		} else {
			other = s
		}
	}
	return master, other
}

// awaitReplica waits until the Sentinels know of each other and of a replica that has what the master has.
func (w *watched) awaitReplica() {
	w.t.Helper()
	harness.Eventually(w.t, 2*time.Minute, "a replica has what the master has", func(ctx context.Context) string {
		others, err := w.sentinel.Sentinels(ctx, masterName).Result()
		if err != nil || len(others) != 2 {
			return fmt.Sprintf("%d other Sentinels are known, %v", len(others), err)
		}
		replicas, err := w.sentinel.Replicas(ctx, masterName).Result()
		if err != nil || len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
			return fmt.Sprintf("replicas: %v, %v", replicas, err)
		}
		master, _ := w.master()
		c := w.connect(master)
		defer func() { _ = c.Close() }()
		if there, err := c.Wait(ctx, 1, time.Second).Result(); err != nil || there != 1 {
			return fmt.Sprintf("%d replicas have the end, %v", there, err)
		}
		return ""
	})
}

func (w *watched) connect(s *harness.RedisServer) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr, Protocol: 2})
}

// failOver kills the master, lets the replica go on, waits until it is the master, and starts the killed one.
func (w *watched) failOver(thaw func()) {
	w.t.Helper()
	before, _ := w.master()
	before.Kill9()
	thaw()
	w.awaitMasterOtherThan(before)
	before.Start(w.t)
}

func (w *watched) awaitMasterOtherThan(before *harness.RedisServer) {
	w.t.Helper()
	harness.Eventually(w.t, time.Minute, "there is another master", func(ctx context.Context) string {
		addr, err := w.sentinel.GetMasterAddrByName(ctx, masterName).Result()
		if err != nil || strings.Join(addr, ":") == before.Addr {
			return fmt.Sprintf("it is %v, %v", addr, err)
		}
		return ""
	})
}

// cutReplica freezes the replica without a connection to the master, so that it has nothing of what comes now.
func (w *watched) cutReplica() (thaw func()) {
	w.t.Helper()
	master, replica := w.master()
	replica.Freeze()
	c := w.connect(master)
	defer func() { _ = c.Close() }()
	if err := c.ClientKillByFilter(w.t.Context(), "TYPE", "replica").Err(); err != nil {
		w.t.Fatalf("cut the replica off: %v", err)
	}
	return replica.Thaw
}

// Replicas of Redis lag, and one that is made master does not have what it missed. Breaks it catches: a relay that goes
// on with a server that is the master no more; one that doubles, or sends out of order, what it finds after a failover;
// a loss that is not said, not found by verify, or not repaired. Seen to fail without the alarm.
func TestRedisFailoversLoseOnlyWhatIsSaid(t *testing.T) {
	w := newWatched(t)
	s := scenario{settings: []any{"sink", "redis-stream", "redis.url", strings.Join(w.addresses, ","),
		"redis.sentinel.master", masterName}}
	transactions, failovers := harness.Count(t, "brokers' transactions"), harness.Count(t, "failovers")
	pg := harness.Postgres(t)
	settings := s.prepare(t, pg)
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	written := 0
	publish := func(portion int, meanwhile func()) { // a portion of the events, while something happens
		done := make(chan struct{})
		go func() {
			defer close(done)
			write(t, conn, written, written+portion)
		}()
		meanwhile()
		<-done
		written += portion
		awaitPublished(t, pg, written*rows)
	}
	missed := false
	for n := range failovers {
		w.awaitReplica()
		switch n % 3 {
		case 0:
			publish(transactions/failovers, func() { w.failOver(func() {}) })
		case 1:
			missed = true
			thaw := w.cutReplica()
			publish(transactions/failovers/2, func() {})
			publish(transactions/failovers/2, func() { w.failOver(thaw) })
		case 2: // the master wakes up, and does not know yet that it is none any more
			former, _ := w.master()
			publish(transactions/failovers, func() {
				former.Freeze()
				w.awaitMasterOtherThan(former)
			})
			former.Thaw()
		}
	}
	events := written * rows
	w.awaitReplica()
	there := w.read(settings.Topic("order"))
	lost := events - len(there)
	wantEach(t, there, len(there), 0) // each once, and in order
	found := verified(t, relay)
	t.Logf("%d failovers, %d events, %d lost", failovers, events, lost)
	if found.Lost != lost || missed && lost == 0 {
		t.Errorf("lost: verify says %d, and %d are not there; want the same, and some", found.Lost, lost)
	}
	if _, out, _ := relay.Run(t, "alarms", "list", "--json"); lost > 0 && !strings.Contains(out, "offsets_went_back") {
		t.Errorf("alarms: got %s, want offsets_went_back", out)
	}
	verified(t, relay, "--repair", "--yes")
	harness.Eventually(t, time.Minute, "what was lost is there", func(context.Context) string {
		if again := verified(t, relay); again.Lost > 0 || again.Missing > 0 {
			return fmt.Sprintf("%+v", again)
		}
		return ""
	})
	if n := len(w.read(settings.Topic("order"))); n != events {
		t.Errorf("got %d events in the stream, want %d", n, events)
	}
	relay.Stop(t)
}

func (w *watched) read(topic string) (found []message) {
	w.t.Helper()
	master, _ := w.master()
	c := w.connect(master)
	defer func() { _ = c.Close() }()
	return entriesOf(w.t, c, topic)
}
