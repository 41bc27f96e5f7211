package relay

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/run/bootstrap"
	"github.com/cdc-relay/cdc-relay/internal/run/outboxes"
	"github.com/cdc-relay/cdc-relay/internal/run/settings"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file turns the configuration into that of the packages below; it reads nothing of a session or its events.

// StoreConfig returns the configuration of the store, for commands that run beside a relay.
func StoreConfig(c config.Config) store.Config { return settings.Store(c) }

// ReplicationConfig returns the configuration of the replication connection.
func ReplicationConfig(c config.Config) replication.Config { return settings.Replication(c) }

// Setup creates the objects that a relay needs in Postgres. `init` and every start of a session use it.
type Setup = bootstrap.Setup

// NewSetup returns a Setup for the server of the configuration.
func NewSetup(c config.Config, tables Tables, log zerolog.Logger) Setup {
	if real, is := tables.(*store.Store); is {
		tables = allTables(c, real, log)
	}
	return Setup{Config: c, Replication: ReplicationConfig(c), Store: tables, Server: server{}, Logger: log}
}

// allTables is the SQL side of the relay: of one outbox the Store itself.
func allTables(c config.Config, real *store.Store, log zerolog.Logger) Tables {
	if c.Outbox.Tables != "" {
		return several{outboxes.Open(real, c.Postgres, log), ofSlot{real}}
	}
	return real
}

// several are the Tables of a relay with several outboxes, whose own methods go before those of the slot's Store.
type (
	several struct {
		*tablesOfAll
		ofSlot
	}
	tablesOfAll = outboxes.Tables
	ofSlot      struct{ *store.Store }
)

// Init creates what is missing in the database of the configuration, as the command init does: the outbox if there is
// none, the relay's own tables and view, the publication and the slot. Existing objects stay as they are. Call it
// before the first Run.
func Init(ctx context.Context, c config.Config) error {
	st, err := store.Open(ctx, StoreConfig(c))
	if err != nil {
		return err
	}
	defer st.Close()
	return NewSetup(c, st, zerolog.Nop()).CreateAll(ctx, st.MakeView)
}

func (r *Relay) setup() Setup {
	s := NewSetup(r.c, r.store, r.log)
	s.Server = r.postgres
	return s
}

func (r *Relay) replicationConfig() replication.Config {
	c := ReplicationConfig(r.c)
	c.Behind = r.meter.Stream.Age
	c.OnNotice = func(n replication.NoticeText) {
		r.log.Warn().Str("severity", n.Severity).Str("sqlstate", n.Code).Str("text", n.Message).
			Msg("notice from Postgres")
	}
	return c
}

func (t *term) sinkConfig() sink.Config {
	return sink.Config{
		MaxEvents: t.r.c.Limits.InFlightEvents, MaxBytes: int(t.r.c.Limits.InFlightBytes),
		MaxUnrecorded:   t.r.c.Limits.MaxUnrecorded,
		MaxRequestBytes: settings.MaxRequest(t.r.c, sink.DefaultMaxRequestBytes),
		Linger:          time.Duration(t.r.c.Kafka.Linger), Behind: t.r.meter.Stream.Age, Permit: t.lease.MayProduce,
		Refuse: func(topic string) *sink.Reason {
			if why := config.IllegalTopic(topic); why != "" {
				return message.IllegalTopic(topic, why)
			}
			return t.names.Refuse(topic)
		},
		Hooks: sink.Hooks{
			Request: t.r.meter.Requests.Sent,
			Rerouted: func(topic string, from, to int) {
				t.r.log.Warn().Str("topic", topic).Int("from", from).Int("to", to).
					Msg("the topic's number of partitions changed; keys may go to other partitions from now on")
			},
		},
	}
}
