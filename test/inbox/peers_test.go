package inbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var (
	peerEvents = flag.Int("peers", 0, "compare with other libraries on so many events: make bench-peers")
	peerKills  = flag.Int("kills", 2, "kill each of them so often while it works")
)

const peerTables = `CREATE TABLE processed (id uuid PRIMARY KEY)`

// peerSession is how long the group waits for one that was killed.
const peerSession = 2 * time.Second

// peerWork is a peer's work for an event: the processed id and one UPDATE, in one transaction.
func peerWork(ctx context.Context, pool *pgxpool.Pool, id, key string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, "INSERT INTO processed VALUES ($1) ON CONFLICT DO NOTHING", id)
		if err != nil || claimed.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE account SET n = n + 1 WHERE key = $1", key)
		return err
	})
}

// peer runs another library's consumer until the context ends.
func (c childConfig) peer(ctx context.Context, pool *pgxpool.Pool) error {
	if c.Peer == "watermill" {
		return c.watermill(ctx, pool)
	}
	r := kafkago.NewReader(kafkago.ReaderConfig{
		Brokers: c.Brokers, GroupID: c.Group, Topic: c.Topic, SessionTimeout: peerSession,
		HeartbeatInterval: time.Second / 2, CommitInterval: time.Second, // a commit for each event costs it 90 µs more
		MaxWait: 100 * time.Millisecond, StartOffset: kafkago.FirstOffset,
	})
	for {
		m, err := r.FetchMessage(ctx)
		if err != nil {
			return errors.Join(r.Close(), notTheEnd(ctx, err))
		}
		id := ""
		for _, h := range m.Headers {
			if h.Key == "id" {
				id = string(h.Value)
			}
		}
		if err := peerWork(ctx, pool, id, string(m.Key)); err != nil {
			return errors.Join(r.Close(), notTheEnd(ctx, err))
		}
		if err := r.CommitMessages(ctx, m); err != nil {
			return errors.Join(r.Close(), notTheEnd(ctx, err))
		}
	}
}

// watermill has one event of each partition out at a time, so as many goroutines as the topic has partitions.
func (c childConfig) watermill(ctx context.Context, pool *pgxpool.Pool) error {
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = peerSession
	config.Consumer.Group.Heartbeat.Interval = time.Second / 2
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: c.Brokers, Unmarshaler: wmkafka.NewWithPartitioningMarshaler(nil), ConsumerGroup: c.Group,
		OverwriteSaramaConfig: config,
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, c.Topic)
	if err != nil {
		return errors.Join(subscriber.Close(), err)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for m := range messages {
				key, _ := wmkafka.MessageKeyFromCtx(m.Context())
				if err := peerWork(ctx, pool, m.Metadata.Get("id"), string(key)); err != nil {
					m.Nack()
				} else {
					m.Ack()
				}
			}
		})
	}
	all.Wait()
	return subscriber.Close()
}

// notTheEnd is the error, but for that of a context that has ended.
func notTheEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it is that of the context
	}
	return err
}

// The inbox beside a loop of kafka-go and watermill, which do the same in Postgres: how fast, for how much CPU, and
// what kill -9 does to the effects. It measures when it is told to; in a usual run it sees, without kills, that each
// has every effect once. Seen to fail with a peer that has its effect before it looks at the id, and kills.
func TestPeers(t *testing.T) {
	events, rows := *peerEvents, []int{0, *peerKills}
	if events == 0 {
		events, rows = 2_000, rows[:1]
	}
	kafka := ownKafka(t)
	topic := kafka.Topic(t, "order", 6, nil)
	preload(t, kafka.Addrs, topic, events)
	for _, peer := range []string{"inbox", "kafka-go", "watermill"} {
		for _, kills := range rows {
			t.Run(fmt.Sprintf("%s, %d kills", peer, kills), func(t *testing.T) {
				pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
				pg.Exec(t, accounts)
				pg.Exec(t, peerTables)
				group := harness.Unique(t, "billing")
				config := childConfig{URL: pg.URL, Brokers: kafka.Addrs, Topic: topic, Update: true, Group: group}
				if peer != "inbox" {
					config.Peer = peer
				}
				measurePeer(t, pg, config, peer, events, kills)
			})
		}
	}
}

func measurePeer(t *testing.T, pg *harness.PG, config childConfig, peer string, events, kills int) {
	t.Helper()
	const effects = "SELECT sum(n) FROM account"
	load, beforePostgres := harness.LoadAverage(), postgresCPU(t, pg)
	p := startProcess(t, config)
	quicklyAtLeast(t, pg, effects, 1)
	began := time.Now()
	for n := range kills {
		quicklyAtLeast(t, pg, effects, (n+1)*events/(kills+1)-rand.IntN(events/(kills+1)))
		p.kill()
		p.start()
	}
	decided := effects
	if peer == "inbox" { // kill -9 again and again can look as if an event did it: it is set aside
		decided = "(" + effects + ") + (SELECT count(*) FROM inbox_dead)"
	}
	quicklyAtLeast(t, pg, decided, events)
	took := time.Since(began)
	if peer == "inbox" {
		const replay = `SELECT count(*) FILTER (WHERE inbox_replay('billing', event_id, 'alice', 'it was kill -9'))
			FROM inbox_dead`
		t.Logf("set aside, and replayed: %s", pg.Query(t, replay))
		quicklyAtLeast(t, pg, effects, events)
	}
	p.signal(syscall.SIGTERM)
	_ = p.command.Wait() // a peer may end with an error
	got := consumed{events, took, p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime(),
		postgresCPU(t, pg) - beforePostgres}
	n, _ := strconv.Atoi(pg.Query(t, effects))
	if kills > 0 {
		t.Logf("%s: %d effects of %d events after %d kills, in %v; load %s", peer, n, events, kills, took, load)
	} else {
		t.Logf("%s: %v; load %s", peer, got, load)
	}
	if n != events {
		t.Errorf("effects: got %d, want %d", n, events)
	}
}

// quicklyAtLeast looks often until the number is there.
func quicklyAtLeast(t *testing.T, pg *harness.PG, sql string, want int) {
	t.Helper()
	quicklyUntil(t, pg, fmt.Sprintf("(%s) >= %d", sql, want), "true")
}
