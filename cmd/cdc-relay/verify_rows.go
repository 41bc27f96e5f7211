package main

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

func (verifyCommand) Help() string {
	return `Reads the outbox table, or a range of it, then the topics from their beginning, and compares: missing,
duplicated, out of order (per key, in the table's order), different bytes, key or topic. Dead letters and parked events
are in no topic and are counted apart, as are rows published before the journal began, and rows whose message a topic's
retention or compaction has removed. Partitions are read in parallel, and the comparison uses temporary files: memory
does not grow with the table.

A row is lost if the journal has it at a place that the topic must still hold and does not: the topic was deleted and
created again, an unclean leader was elected, a disk failed. With --repair the relay on the slot publishes lost rows
again, with the header x-outbox-replay; if none is running, the next one to start does. They keep their order per key
among themselves, but come after what their keys have in the topics by now. The command asks for confirmation; without
a terminal it needs --yes. Rows without a known place, and rows that retention removed, are never repaired.

It reads Kafka, JetStream, and the streams of Redis and RabbitMQ. What RabbitMQ's queues, BullMQ and webhooks have
cannot be read back: with these sinks it refuses, with exit code 2, and says where to look.

Times are RFC 3339 or an age such as 24h. Exit code 1 if something is missing or has different bytes. Concurrent
transactions can commit in another order than the table's, so a few rows out of order prove no fault.

With --consumer it goes on to the effect, in SQL alone: of the rows that were published, which has the consumer's inbox
as done, parked, dead or discarded, which has it not come to yet, and which is missing: behind its offset without an
effect. The inbox is the Go package's, or what init --inbox has made. Exit code 1 if one is missing.

Examples:

  cdc-relay verify --config relay.yaml

  cdc-relay verify --config relay.yaml --since 24h --until 5m --json

  cdc-relay verify --config relay.yaml --repair --note "topic created again"

  cdc-relay verify --config relay.yaml --consumer billing --inbox-url postgres://billing@db/billing`
}

// rows are those that the flags choose; it notes what is wrong with the flags.
func (c verifyCommand) rows(a *cli.App, now time.Time) store.AuditRange {
	w := store.AuditRange{FromID: c.FromID, ToID: c.ToID}
	for _, bound := range []struct {
		flag, text string
		into       **time.Time
	}{{"--since", c.Since, &w.Since}, {"--until", c.Until, &w.Until}} {
		if bound.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, bound.text)
		if err != nil {
			age, ageErr := store.ParseAge(bound.text)
			if ageErr != nil {
				a.Wrong(bound.flag, fmt.Sprintf("found %q", bound.text),
					"a time such as 2026-01-31T12:00:00Z, or an age above zero such as 90s, 24h or 7d")
				continue
			}
			at = now.Add(-time.Duration(age))
		}
		*bound.into = &at
	}
	if w.Since != nil && w.Until != nil && !w.Since.Before(*w.Until) {
		a.Wrong("--until", fmt.Sprintf("found %q, and --since %q", c.Until, c.Since),
			"a later time: no row is between the two")
	}
	return w
}
