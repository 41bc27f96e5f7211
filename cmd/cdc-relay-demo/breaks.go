package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/relay/install"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

const (
	poisonBytes = 128 << 10        // an event that the relay may not send
	patience    = 60 * time.Second // for what an incident left behind to arrive
)

// stage is where incidents happen.
type stage struct {
	*servers
	cfg   config.Config
	st    *store.Store
	relay *childRelay
	load  *demoLoad
}

// incident is something that goes wrong, and what becomes of it. Between the two it lasts.
type incident struct {
	happens, look string // what is done, and where to look
	do            func(context.Context) error
	over          string
	undo          func(context.Context) error
}

func (s *stage) incidents() []incident {
	return []incident{
		{"The broker stops.", `the pill leaves "active", the backlog grows, nothing fails`, s.stopBroker,
			"It is back", s.startBroker},
		{"An event is committed that is too large to be sent.",
			"it is in Dead letters, the other events of its key flow", s.poison,
			"It stays in Dead letters, for a person to edit or discard", s.awaitDeadLetter},
		{"kill -9 of the relay.", `it greys out and says "no answer"`, func(context.Context) error { return s.relay.kill() },
			"It is started again, and reads from the topics what it had sent", s.relay.start},
		{"The replication slot is dropped.", "in System the slot is back, with another position", s.dropSlot,
			"The relay has created it again, and published from the table what its stream lacked", nothing},
		// The last one, since a start afterwards raises an alarm: the topic lacks records that consumers have read.
		{"A topic is deleted.", "its events are parked, those of the other topics flow", s.deleteTopic,
			"It is created again, and gets its events in order", s.createTopic},
	}
}

func nothing(context.Context) error { return nil }

// showBreaks plays the incidents, one after another, under load.
func (c demoCommand) showBreaks(ctx context.Context, a *cli.App, cfg config.Config) (err error) {
	s := &stage{cfg: cfg, load: newDemoLoad(c.Rate, c.Aggregates)}
	s.load.tolerant = true
	if s.servers, err = c.startKeeping(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	s.cfg = demoConfig(cfg, s.addresses())
	if s.st, err = store.Open(ctx, relay.StoreConfig(s.cfg)); err != nil {
		return err
	}
	defer s.st.Close()
	if err := install.All(ctx, s.cfg, s.st); err != nil {
		return err
	}
	if s.relay, err = newChild(ctx, a, s.cfg); err != nil {
		return err
	}
	if err := s.relay.start(ctx); err != nil {
		return err
	}
	say := a.Narration()
	cli.Fprintf(say, "The broker is not Kafka but an in-process stand-in (kfake). The console: http://%s\n", s.relay.address)
	cli.Fprintf(say, "Writing %d events per second of %d aggregates, while things break. Ctrl-C stops.\n\n", c.Rate,
		c.Aggregates)
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	group, groupCtx := errgroup.WithContext(running)
	writing, stopWriting := context.WithCancel(groupCtx)
	defer stopWriting()
	playing, stopPlaying := context.WithCancel(ctx)
	defer stopPlaying()
	defer context.AfterFunc(groupCtx, stopPlaying)()
	written := make(chan struct{})
	group.Go(func() error {
		defer close(written)
		return s.load.write(writing, s.cfg)
	})
	group.Go(func() error { return s.load.consume(groupCtx, s.cfg) })
	err = s.play(playing, a, c.Pause)
	stopWriting()
	<-written // the writer commits what it has begun, which is to arrive as well
	s.load.await(groupCtx, demoSettling)
	err = errors.Join(err, s.relay.stop())
	stopRunning()
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	return sumUp(a, s.load.totals(), c.broker())
}

// startKeeping starts the servers, with a broker that keeps its topics over a restart.
func (c demoCommand) startKeeping(ctx context.Context) (*servers, error) {
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Password: rand.Text()})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cdc-relay-demo-kafka-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for the broker: %w", err), postgres.Stop())
	}
	s := &servers{postgres: postgres, kafka: embedded.FakeKafkaConfig{Topics: demoPartitioned(), DataDir: dir}}
	if s.broker, err = embedded.StartFakeKafka(s.kafka); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), postgres.Stop())
	}
	s.kafka.Port, s.kafka.Topics = s.broker.Port(), nil
	return s, nil
}

// play has each incident happen, last and end, and says two lines of it. The second comes when all that was written
// before has arrived.
func (s *stage) play(ctx context.Context, a *cli.App, lasting time.Duration) error {
	say, begun := a.Narration(), time.Now()
	line := func(format string, arguments ...any) {
		cli.Fprintf(say, "%4.0fs  %s\n", time.Since(begun).Seconds(), fmt.Sprintf(format, arguments...))
	}
	all := s.incidents()
	for n, i := range all {
		if pause(ctx, lasting/2); isOver(ctx) {
			return nil
		}
		line("%d/%d  %s Look at the console: %s.", n+1, len(all), i.happens, i.look)
		if err := i.do(ctx); err != nil {
			return s.failed(ctx, i.happens, err)
		}
		pause(ctx, lasting)
		if err := i.undo(ctx); err != nil {
			return s.failed(ctx, i.over, err)
		}
		if err := s.load.catchUp(ctx, patience); err != nil {
			return s.failed(ctx, i.over, err)
		}
		t, longest := s.load.totals(), s.load.longestWait()
		line("     %s. No event waited longer than %s; of %d so far missing 0, duplicated %d, out of order %d.", i.over,
			longest.Round(10*time.Millisecond), t.received, t.duplicated, t.reordered)
	}
	return nil
}

// failed is the error of an incident, unless someone ended the demo.
func (s *stage) failed(ctx context.Context, what string, err error) error {
	if isOver(ctx) {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.TrimSuffix(what, "."), err)
}

// isOver reports whether the demo was ended from outside. Errors that follow from it are not reported.
func isOver(ctx context.Context) bool { return ctx.Err() != nil }

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (s *stage) stopBroker(context.Context) error {
	s.broker.Close()
	return nil
}

func (s *stage) startBroker(context.Context) (err error) {
	s.broker, err = embedded.StartFakeKafka(s.kafka)
	return err
}

// poison commits an event that is larger than the relay may send. The consumer never gets it, so the load does not know
// of it.
func (s *stage) poison(ctx context.Context) error {
	return s.onPostgres(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			VALUES ($1, $1 || '-0', $1 || ' changed', jsonb_build_object('note', repeat('x', $2)))`, demoTypes[0], poisonBytes)
		return err
	})
}

func (s *stage) awaitDeadLetter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.onPostgres(ctx, func(conn *pgx.Conn) error {
		for {
			var is bool
			err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outbox_events_dlq)").Scan(&is)
			if err != nil || is {
				return err
			}
			pause(ctx, demoPoll)
		}
	})
}

// theTopic is the one that is deleted.
func theTopic() string { return demoTopics()[0] }

// deleteTopic deletes it while no event is on its way: what consumers have not read goes with a topic.
func (s *stage) deleteTopic(ctx context.Context) error {
	s.load.gate.Lock()
	defer s.load.gate.Unlock()
	if err := s.load.catchUp(ctx, patience); err != nil {
		return err
	}
	response, err := s.client().DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{theTopic()}})
	if err != nil {
		return err
	}
	return response.Errors[theTopic()]
}

func (s *stage) createTopic(ctx context.Context) error {
	response, err := s.client().CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{
		{Topic: theTopic(), NumPartitions: demoPartitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	s.load.reopen(theTopic()) // its offsets begin at 0
	return response.Errors[theTopic()]
}

func (s *stage) client() *kafkago.Client {
	return &kafkago.Client{Addr: kafkago.TCP(s.broker.Addresses()...), Timeout: demoSettling}
}

// dropSlot drops it between two connections of the relay.
func (s *stage) dropSlot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.onPostgres(ctx, func(conn *pgx.Conn) error {
		for {
			_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots
				WHERE slot_name = $1 AND active`, s.cfg.Postgres.Slot)
			if err == nil {
				_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", s.cfg.Postgres.Slot)
			}
			if err == nil || ctx.Err() != nil {
				return err
			}
			pause(ctx, time.Millisecond) // its connection is about to end, or there is another one
		}
	})
}

func (s *stage) onPostgres(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(s.cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}
