package brokers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A relay is killed when much of what it has sent is not journaled, and two of the three servers with it. The next one
// finds a stream without a leader for longer than it waits, and sends once there is one.
//
// Breaks it catches: events that come twice because no one could read the topic back in time. Seen to fail with a
// driver that defers nothing: 1,081 events doubled.
func TestNATSRelayThatStartsWithoutALeaderDoublesNothing(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "frozen relays") == 0 {
		t.Skip("runs at night")
	}
	const first, transactions = 20, 120
	servers := harness.NATSCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	cluster := natsCluster{t: t, servers: servers, nc: natsReader(t, strings.Join(urls, ",")), atomic: true}
	s := scenario{settings: []any{"sink", "nats", "nats.url", strings.Join(urls, ",")}, begin: cluster.makeStream}
	pg := harness.Postgres(t)
	settings := s.prepare(t, pg)
	s.read = func(topic string) []message { return messagesOf(t, cluster.nc, topic) }
	relay := harness.StartRelay(t, settings)
	conn, locker := pg.Connect(t), pg.Connect(t)
	write(t, conn, 0, first)
	awaitPublished(t, pg, first*rows)
	harness.Eventually(t, time.Minute, "how far the topic is journaled is kept", func(ctx context.Context) string {
		got, err := pg.TryQuery(ctx, "SELECT max(next_offset) FROM cdc_relay_offset")
		if err != nil || got != fmt.Sprint(first*rows+1) {
			return fmt.Sprintf("%s, %v", got, err)
		}
		return ""
	})

	if _, err := locker.Exec(t.Context(), "BEGIN; LOCK TABLE cdc_relay_journal IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	write(t, conn, first, transactions)
	js, err := cluster.nc.JetStream(nats.MaxWait(5 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	sent := uint64(0)
	harness.Eventually(t, time.Minute, "much is sent and not journaled", func(context.Context) string {
		info, err := js.StreamInfo(clusterStream)
		if err != nil {
			return err.Error()
		}
		if sent = info.State.LastSeq; sent < (first+transactions)/2*rows {
			return fmt.Sprintf("the stream ends at %d", sent)
		}
		return ""
	})
	relay.Kill9()
	servers[1].Kill9()
	servers[2].Kill9()
	pg.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'`)
	if _, err := locker.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events are sent, %s journaled", sent, pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"))

	relay.Start(t)
	harness.Eventually(t, time.Minute, "the relay goes on without having read the topic", func(context.Context) string {
		if log := relay.Log(t); !strings.Contains(log, "it is read before the next event is sent to it") {
			return "its log does not say so"
		}
		return ""
	})
	servers[1].Start(t)
	servers[2].Start(t)
	awaitPublished(t, pg, transactions*rows)
	relay.Stop(t)
	s.look(t, settings, transactions*rows)
}
