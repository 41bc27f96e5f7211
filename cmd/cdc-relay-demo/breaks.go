package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

const poisonBytes = 128 << 10 // an event that the relay may not send

// incident is something that goes wrong, and what becomes of it. Between the two it lasts.
type incident struct {
	name, label   string // for the console: what it is asked for by, and the text of its button
	happens, look string // what is done, and where to look
	do            func(context.Context) error
	over          string
	undo          func(context.Context) error
}

func (s *stage) incidents() []incident {
	return []incident{
		{"broker", "Stop the broker", "The broker stops.", `the pill leaves "active", the backlog grows, nothing fails`,
			s.stopBroker, "It is back", s.startBroker},
		{"event", "Poison an event", "An event is committed that is too large to be sent.",
			"it is in Dead letters, the other events of its key flow", s.poison,
			"It stays in Dead letters, for a person to edit or discard", s.awaitDeadLetter},
		{"relay", "Kill the relay", "kill -9 of the relay.", `it greys out and says "no answer"`,
			func(context.Context) error { return s.relay.kill() },
			"It is started again, and reads from the topics what it had sent", s.restartRelay},
		{"slot", "Drop the slot", "The replication slot is dropped.", "in System the slot is back, with another position",
			s.dropSlot, "The relay has created it again, and published from the table what its stream lacked", nothing},
		// The last one, since its alarm stays: the topic lacks records that consumers have read.
		{"topic", "Delete the topic", "A topic is deleted.", "its events are parked, those of the other topics flow",
			s.deleteTopic, "It is created again, and gets its events in order. An alarm, at the latest when the relay " +
				"starts again, tells that what the old one had is gone", s.createTopic},
	}
}

func nothing(context.Context) error { return nil }

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

func (s *stage) restartRelay(ctx context.Context) error { return s.relay.start(ctx, s.scene) }

func (s *stage) startBroker(context.Context) (err error) {
	s.broker, err = embedded.StartFakeKafka(s.kafka)
	return err
}

// poison commits an event that is larger than the relay may send. The load does not count it, even if a person edits
// and replays it.
func (s *stage) poison(ctx context.Context) error {
	return s.onPostgres(ctx, func(conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			err := tx.QueryRow(ctx, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
				VALUES ($1, $1 || '-0', $1 || ' changed', jsonb_build_object('note', repeat('x', $2))) RETURNING id::text`,
				demoTypes[0], poisonBytes).Scan(&s.poisoned)
			if err == nil {
				s.load.ignore(s.poisoned)
			}
			return err
		})
	})
}

func (s *stage) awaitDeadLetter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.onPostgres(ctx, func(conn *pgx.Conn) error {
		for {
			var is bool
			err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM outbox_events_dlq WHERE original_id = $1)",
				s.poisoned).Scan(&is)
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
	client, done := s.client()
	defer done()
	response, err := client.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{theTopic()}})
	if err != nil {
		return err
	}
	return response.Errors[theTopic()]
}

func (s *stage) createTopic(ctx context.Context) error {
	client, done := s.client()
	defer done()
	response, err := client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{
		{Topic: theTopic(), NumPartitions: demoPartitions, ReplicationFactor: 1}}})
	if err != nil {
		return err
	}
	s.load.reopen(theTopic()) // its offsets begin at 0
	return response.Errors[theTopic()]
}

// client has connections of its own: those of another incident may lead to a broker that was stopped since.
func (s *stage) client() (c *kafkago.Client, done func()) {
	t := new(kafkago.Transport)
	return &kafkago.Client{Addr: kafkago.TCP(s.broker.Addresses()...), Timeout: demoSettling, Transport: t},
		t.CloseIdleConnections
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
