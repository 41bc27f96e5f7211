// Package settings turns the configuration into that of the packages below the relay. It knows no session and no event.
package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/retry"
)

// Store is the store's part of the configuration.
func Store(c config.Config) store.Config {
	return store.Config{
		URL: c.Postgres.URL, Password: password(c), PoolSize: c.Postgres.PoolSize,
		Schema: c.Postgres.Schema, Slot: c.Postgres.Slot, DeadSet: c.Outbox.DeadSet, RetrySet: c.Outbox.RetrySet,
		Table: c.Outbox.Named(), Several: c.Outbox.Tables != "",
		Columns: message.Columns(c), AfterPublish: c.Outbox.AfterPublish, MarkSet: c.Outbox.MarkSet,
		Retention: time.Duration(c.Outbox.Retention), HoldDead: c.Retry.OnDead == config.OnDeadHold,
		PublishedWhen: c.Outbox.PublishedWhen, OrderBy: c.Outbox.OrderBy, DLQTable: c.DLQ.Table,
		TimeZone: c.Outbox.TimeZone,
		MaxRow:   int64(c.Limits.MaxEventBytes), Lanes: Lanes(c),
	}
}

// Lanes returns a fingerprint of what decides an event's topic and key: the templates, and the columns that they name.
func Lanes(c config.Config) string {
	columns := c.Outbox.Columns
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{c.Sink, c.Message.Topic, c.Message.Key, columns.AggregateType,
		columns.AggregateID, columns.EventType, columns.ID}))
	return hex.EncodeToString(sum[:8])
}

// Replication is the stream's part of the configuration.
func Replication(c config.Config) replication.Config {
	url := c.Postgres.ReplicationURL
	if url == "" {
		url = c.Postgres.URL
	}
	return replication.Config{
		URL: url, Password: password(c), Slot: c.Postgres.Slot, Publication: c.Postgres.Publication,
		ApplicationName:  "cdc-relay/stream/" + c.Postgres.Slot,
		StatusInterval:   time.Duration(c.Postgres.StatusInterval),
		WALSenderTimeout: time.Duration(c.Postgres.WALSenderTimeout), MaxRow: int(c.Limits.MaxEventBytes),
		ReadInterval: readInterval(c),
	}
}

// readInterval is what kafka.linger leaves of the latency target. The sink needs no linger of its own: what one look at
// the stream brings goes in one request to each broker.
func readInterval(c config.Config) time.Duration {
	return time.Duration(max(c.LatencyTarget-c.Kafka.Linger, 0))
}

// Retry says when an event that failed is tried again, and when it is given up.
func Retry(c config.Retry) retry.Policy {
	p := retry.Policy{
		MaxAttempts: c.MaxAttempts,
		Backoff: retry.Backoff{
			Initial: time.Duration(c.InitialBackoff), Max: time.Duration(c.MaxBackoff), Jitter: c.Jitter,
		},
	}
	for _, d := range c.Schedule {
		p.Schedule = append(p.Schedule, time.Duration(d))
	}
	return p
}

func password(c config.Config) *secret.Source {
	return secret.Of("postgres", c.Postgres.PasswordFile, c.Postgres.PasswordCommand)
}

const (
	// requestShare is the part of the window that one request may take, an eighth: the encoded request and the client's
	// copy of it come on top of the window, once per broker.
	requestShare = 8
	leastRequest = 1 << 20
)

// MaxRequest is how many bytes a request may have, where it may have most in any case.
func MaxRequest(c config.Config, most int) int {
	return min(most, max(leastRequest, int(c.Limits.InFlightBytes)/requestShare))
}
