package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// drain fills a slot, lets the bare stream read a copy of it, and then the relay the slot itself. The relay has run and
// stopped in order before, so that it looks nothing up.
func (c benchCommand) drain(ctx context.Context, area *benchArea, perTransaction int, one *benchRun) error {
	_, end, err := area.relay(ctx)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := c.fill(ctx, area, perTransaction); err != nil {
		return err
	}
	one.Events = c.Events
	if err := c.floor(ctx, area, one); err != nil {
		return fmt.Errorf("measure the stream alone: %w", err)
	}
	resetPeak()
	before := cpuTime()
	r, end, err := area.relay(ctx)
	if err != nil {
		return err
	}
	var first, last time.Time
	settled := func() bool {
		now, status := time.Now(), r.Status()
		if first.IsZero() && status.Received > 0 {
			first = now
		}
		last = now
		return status.Settled >= uint64(c.Events) || status.Role == relay.RoleHalted
	}
	err = area.poll(ctx, "every event is journaled", settled)
	one.CPU = (cpuTime() - before).Seconds() * million / float64(c.Events)
	one.PeakMiB = peakMiB()
	one.Rate = float64(c.Events) / last.Sub(first).Seconds()
	return errors.Join(err, end())
}

const million = 1e6

// fill commits the events of a drain, each key's in the order of its numbers.
func (c benchCommand) fill(ctx context.Context, area *benchArea, perTransaction int) error {
	conn, err := connect(ctx, area.cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if perTransaction == 0 {
		perTransaction = c.Events
	}
	// The server makes the rows and commits as it goes, or each single row would cost a round trip.
	_, err = conn.Exec(ctx, fmt.Sprintf(`DO $$
BEGIN
  SET LOCAL synchronous_commit = off;
  FOR base IN 0 .. %d BY %d LOOP
    INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload)
    SELECT 'bench', 'key-' || n %% %d, 'benched', jsonb_build_object('n', n, 'filler', repeat('x', %d))
    FROM generate_series(base, least(base + %d, %d)) AS n;
    COMMIT;
    SET LOCAL synchronous_commit = off;
  END LOOP;
END $$`, c.Events-1, perTransaction, area.cfg.Outbox.Table, c.Keys, c.filler(), perTransaction-1, c.Events-1))
	if err == nil {
		_, err = conn.Exec(ctx, "CHECKPOINT") // now, rather than while the relay is measured
		if err != nil && strings.Contains(err.Error(), "42501") {
			err = nil // not everybody may
		}
	}
	if err != nil {
		return fmt.Errorf("fill the slot: %w", err)
	}
	return nil
}

// filler is how long the filling of a payload is.
func (c benchCommand) filler() int {
	const rest = len(`{"n": 100000, "filler": ""}`)
	return max(0, c.Payload-rest)
}

// floor reads a copy of the slot and throws everything away: what the server's sending and our reading can give at most.
func (c benchCommand) floor(ctx context.Context, area *benchArea, one *benchRun) (err error) {
	cfg := relay.ReplicationConfig(area.cfg)
	cfg.Slot += "_floor"
	if err := area.exec(ctx, fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', '%s')", area.name, cfg.Slot)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, area.dropSlot(context.WithoutCancel(ctx), cfg)) }()
	session, err := replication.Open(ctx, cfg)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	before := cpuTime()
	go func() { ended <- session.Run(running, func() outbox.LSN { return session.Confirmed }) }()
	var first, last time.Time
	events := 0
	patience := time.AfterFunc(benchPatience, stop)
	defer patience.Stop()
	for batch := range session.Batches() {
		for _, m := range batch.Messages {
			if !m.Keepalive && m.Data[0] == 'I' {
				events++
			}
		}
		if events > 0 && first.IsZero() {
			first = batch.Received
		}
		last = batch.Received
		batch.Recycle(false)
		if events >= c.Events {
			break
		}
	}
	one.FloorCPU = (cpuTime() - before).Seconds() * million / float64(c.Events)
	stop()
	for batch := range session.Batches() {
		batch.Recycle(false)
	}
	if err := <-ended; events < c.Events {
		return fmt.Errorf("the stream ended after %d of %d events: %w", events, c.Events, err)
	}
	one.Floor = float64(c.Events) / last.Sub(first).Seconds()
	return nil
}
