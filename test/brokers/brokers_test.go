// Package brokers_test runs the whole relay, as a process, between a real Postgres and each broker besides Kafka, and
// judges what the broker has when everything was killed and cut.
package brokers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) {
	if orders := os.Getenv(loopVariable); orders != "" {
		os.Exit(obey(orders))
	}
	harness.Main(m)
}

// message is an event's message at the broker.
type message struct {
	id, key  string
	payload  []byte
	replayed bool // as its header says
}

const replayHeader = "x-outbox-replay"

// scenario is a broker before which connections are cut.
type scenario struct {
	settings []any              // of the relay, besides the usual ones
	begin    func(topic string) // makes what the relay does not; nil: nothing is needed
	proxy    *cutproxy.Plain
	restart  func() // kills the broker and starts it again
	read     func(topic string) []message
	// duplicates is how many there may be, of what was in flight when something broke; nil: none.
	duplicates func() int
	counts     bool // allow those as well that relays count
	counted    int  // by the relays that have ended
	size       size
}

// size is how much is tried; zero: as much as the table of scenarios says.
type size struct{ transactions, kills, faults int }

const (
	rows = 20 // of a transaction
	keys = 25
)

// judge writes events while the relay and the broker are killed and connections are cut, and looks at what is there.
func judge(t *testing.T, s scenario) {
	t.Helper()
	transactions := cmp.Or(s.size.transactions, harness.Count(t, "brokers' transactions"))
	kills := cmp.Or(s.size.kills, harness.Count(t, "brokers' kills"))
	faults := cmp.Or(s.size.faults, harness.Count(t, "brokers' faults"))
	pg := harness.Postgres(t)
	settings := s.prepare(t, pg)
	relay := harness.StartRelay(t, settings)
	// Each fault finds a part of the load before the relay: the writer is never further ahead than that.
	part := transactions / (faults + 5)
	broken, written := make(chan struct{}), make(chan struct{})
	conn := pg.Connect(t)
	go func() {
		defer close(written)
		write(t, conn, 0, 2*part)
		for fault := range faults {
			select {
			case <-broken:
			case <-t.Context().Done():
				return
			}
			write(t, conn, (fault+2)*part, (fault+3)*part)
		}
		write(t, conn, (faults+2)*part, transactions)
	}()
	every := faults / kills // of the faults goes with a kill of the relay
	for fault := range faults {
		awaitPublished(t, pg, (fault+1)*part*rows)
		kill := (fault+1)%every == 0
		s.proxy.LoseAnswers(0)
		s.proxy.Tear(0)
		switch {
		case kill && fault/every%3 == 1:
			s.restart()
		case fault%3 == 0:
			s.proxy.Cut()
		case fault%3 == 1:
			s.proxy.LoseAnswers(1)
		default:
			s.proxy.Tear(1)
		}
		if kill {
			s.count(t, relay)
			relay.Kill9()
			relay.Start(t)
		}
		broken <- struct{}{}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-written
		awaitPublished(t, pg, transactions*rows)
	}()
	looker := pg.Connect(t)
	cutproxy.Disturb(s.proxy, func() (last int64) {
		const journaled = "SELECT coalesce(max(batch), 0) FROM cdc_relay_journal_batch"
		if err := looker.QueryRow(t.Context(), journaled).Scan(&last); err != nil {
			t.Errorf("look how far the relay is: %v", err)
		}
		return last
	}, done, func() {})
	s.count(t, relay)
	relay.Stop(t)
	t.Logf("%d connections were cut", s.proxy.Cuts())
	s.look(t, settings, transactions*rows)
}

// count adds what the relay, which is about to end, counted as possible duplicates.
func (s *scenario) count(t *testing.T, relay *harness.Relay) {
	t.Helper()
	if !s.counts {
		return
	}
	harness.Eventually(t, time.Minute, "the relay tells its possible duplicates", func(ctx context.Context) string {
		n, err := relay.AskMetric(ctx, "outbox_possible_duplicates_total")
		if err != nil {
			return err.Error()
		}
		s.counted += int(n)
		return ""
	})
}

// prepare makes the configuration and what the relay does not make itself.
func (s scenario) prepare(t *testing.T, pg *harness.PG) harness.Settings {
	t.Helper()
	settings := harness.NewSettings(t, pg, nil).With(s.settings...)
	delete(settings, "kafka.brokers")
	delete(settings, "outbox.columns.headers")
	if s.begin != nil {
		s.begin(settings.Topic("order"))
	}
	return settings
}

// look judges what the broker has of n events.
func (s scenario) look(t *testing.T, settings harness.Settings, n int) {
	t.Helper()
	allowed := s.counted
	if s.duplicates != nil {
		allowed += s.duplicates()
	}
	duplicates := wantEach(t, s.read(settings.Topic("order")), n, allowed)
	t.Logf("%d events, %d duplicates of at most %d", n, duplicates, allowed)
}

// judgeFrozen freezes a relay under load until another has taken over and published, and wakes it up.
func judgeFrozen(t *testing.T, s scenario) {
	t.Helper()
	const transactions = 300
	pg := harness.Postgres(t)
	settings := s.prepare(t, pg).With("postgres.wal_sender_timeout", "2s", "postgres.status_interval", "400ms")
	frozen := harness.StartRelay(t, settings)
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	standby := harness.NewRelay(t, settings.With("http.listen", fmt.Sprintf("127.0.0.1:%d", port)))
	standby.Start(t)
	standby.WaitReady(t, time.Minute)
	written := make(chan struct{})
	conn := pg.Connect(t)
	go func() {
		defer close(written)
		write(t, conn, 0, transactions)
	}()
	awaitPublished(t, pg, transactions*rows/10)
	frozen.Freeze()
	harness.Eventually(t, time.Minute, "the standby has taken over", func(ctx context.Context) string {
		active, err := standby.AskMetric(ctx, "cdc_relay_role", `role="active"`)
		if err != nil {
			return err.Error()
		}
		if active != 1 {
			return "not yet"
		}
		return ""
	})
	awaitPublished(t, pg, transactions*rows/3)
	frozen.Thaw()
	<-written
	awaitPublished(t, pg, transactions*rows)
	standby.Stop(t)
	frozen.Stop(t)
	s.look(t, settings, transactions*rows)
}

// wantEach checks that all n events are there, the first ones of a key in order, and that no more than so many are
// there again.
func wantEach(t *testing.T, found []message, n, allowed int) (duplicates int) {
	t.Helper()
	last := map[string]int{}
	seen := map[string]bool{}
	for _, m := range found {
		var body struct {
			N int `json:"n"`
		}
		if err := json.Unmarshal(m.payload, &body); err != nil {
			t.Fatalf("payload %q: %v", m.payload, err)
		}
		if seen[m.id] {
			if duplicates++; duplicates > allowed {
				t.Errorf("event %s (%d) is there twice, the %dth of %d that may be", m.id, body.N, duplicates, allowed)
			}
			continue
		}
		if body.N <= last[m.key] {
			t.Errorf("key %s: event %d comes behind %d", m.key, body.N, last[m.key])
		}
		seen[m.id], last[m.key] = true, body.N
	}
	if len(seen) != n {
		t.Errorf("got %d events in the broker, want %d", len(seen), n)
	}
	return duplicates
}

// write commits the events of these transactions, from 0, the numbers of a key in order.
func write(t *testing.T, conn *pgx.Conn, from, to int) {
	for n := from; n < to; n++ {
		_, err := conn.Exec(context.Background(), `INSERT INTO outbox_events
			(id, aggregate_type, aggregate_id, event_type, payload)
			SELECT gen_random_uuid(), 'order', 'key-' || i % $1, 'changed', jsonb_build_object('n', i)
			FROM generate_series($2::int, $3::int) i`, keys, n*rows+1, (n+1)*rows)
		if err != nil {
			t.Errorf("write events: %v", err)
			return
		}
	}
}

func awaitPublished(t *testing.T, pg *harness.PG, n int) {
	t.Helper()
	awaitPublishedWithin(t, pg, n, 3*time.Minute)
}

func awaitPublishedWithin(t *testing.T, pg *harness.PG, n int, within time.Duration) {
	t.Helper()
	harness.Eventually(t, within, "events are journaled", func(ctx context.Context) string {
		got, err := pg.TryQuery(ctx, "SELECT count(*) FROM cdc_relay_journal")
		if err != nil {
			return err.Error()
		}
		var count int
		if _, err := fmt.Sscan(got, &count); err != nil || count < n {
			return fmt.Sprintf("%s of %d", got, n)
		}
		return ""
	})
}

// Breaks it catches: an event lost, doubled or out of order between Postgres and Redis, whatever is killed. Seen to
// fail with the driver's Tail left out.
func TestRedisStreamHasEachEventOnceInOrder(t *testing.T) {
	server := harness.Redis(t, "--appendfsync", "always")
	proxy := cutproxy.StartPlain(t, server.Addr)
	reader := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2})
	t.Cleanup(func() { _ = reader.Close() })
	judge(t, scenario{
		settings: []any{"sink", "redis-stream", "redis.url", "redis://" + proxy.Addr},
		proxy:    proxy,
		restart:  func() { server.Kill9(); server.Start(t) },
		read:     func(topic string) []message { return entriesOf(t, reader, topic) },
	})
}

// Breaks it catches: an event lost, doubled or out of order when a frozen relay wakes up behind another that took over.
// Seen to fail with the driver's Tail left out.
func TestRedisStreamOfAFrozenRelay(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "frozen relays") == 0 {
		t.Skip("runs at night")
	}
	server := harness.Redis(t)
	reader := newReader(t, server)
	judgeFrozen(t, scenario{
		settings: []any{"sink", "redis-stream", "redis.url", "redis://" + server.Addr},
		read:     func(topic string) []message { return entriesOf(t, reader, topic) },
	})
}

// entriesOf reads the stream from its first entry to its last.
func entriesOf(t *testing.T, c redis.UniversalClient, topic string) (found []message) {
	t.Helper()
	return entriesWith(t, c, topic, "payload")
}

// entriesWith reads a stream that has the payload in the field.
func entriesWith(t *testing.T, c redis.UniversalClient, topic, payload string) (found []message) {
	t.Helper()
	entries, err := c.XRange(t.Context(), topic, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text := func(name string) string { return fmt.Sprint(e.Values[name]) }
		found = append(found, message{id: text("id"), key: text("key"), payload: []byte(text(payload)),
			replayed: e.Values[replayHeader] == "1"})
	}
	return found
}
