package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// drain fills a slot, lets the bare stream read a copy of it, and then the relay the slot itself. The relay has run and
// stopped in order before, so that it looks nothing up.
func (o Options) drain(ctx context.Context, b *area, perTransaction int, one *Outcome) error {
	_, end, err := b.relay(ctx)
	if err != nil {
		return err
	}
	if err := end(); err != nil {
		return err
	}
	if err := o.fill(ctx, b, perTransaction); err != nil {
		return err
	}
	one.Events = o.Events
	if err := o.floor(ctx, b, one); err != nil {
		return fmt.Errorf("measure the stream alone: %w", err)
	}
	resetPeak()
	before := cpuTime()
	r, end, err := b.relay(ctx)
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
		return status.Settled >= uint64(o.Events) || status.Role == relay.RoleHalted
	}
	err = b.poll(ctx, "every event is journaled", settled)
	one.CPU = (cpuTime() - before).Seconds() * million / float64(o.Events)
	one.PeakMiB = peakMiB()
	one.Rate = float64(o.Events) / last.Sub(first).Seconds()
	return errors.Join(err, end())
}

const million = 1e6

// fill commits the events of a drain.
func (o Options) fill(ctx context.Context, b *area, perTransaction int) error {
	conn, err := store.Connect(ctx, relay.StoreConfig(b.cfg))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	load := Load{
		Table: b.cfg.Outbox.Table, AggregateType: "bench", Events: o.Events, PerTransaction: perTransaction,
		Keys: o.Keys, Payload: o.Payload,
	}
	if _, err := conn.Exec(ctx, load.SQL()); err != nil {
		return fmt.Errorf("fill the slot: %w", err)
	}
	// Now, rather than while the relay is measured.
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil && !strings.Contains(err.Error(), "42501") { // not everybody may
		return fmt.Errorf("write out what fills the slot: %w", err)
	}
	return nil
}

// floor reads a copy of the slot and throws everything away: what the server's sending and our reading can give at
// most.
func (o Options) floor(ctx context.Context, b *area, one *Outcome) (err error) {
	cfg := relay.ReplicationConfig(b.cfg)
	cfg.Slot += "_floor"
	if err := b.exec(ctx, fmt.Sprintf("SELECT pg_copy_logical_replication_slot('%s', '%s')", b.name,
		cfg.Slot)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.dropSlot(context.WithoutCancel(ctx), cfg)) }()
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
	over := time.AfterFunc(patience, stop)
	defer over.Stop()
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
		if events >= o.Events {
			break
		}
	}
	one.FloorCPU = (cpuTime() - before).Seconds() * million / float64(o.Events)
	stop()
	for batch := range session.Batches() {
		batch.Recycle(false)
	}
	if err := <-ended; events < o.Events {
		return fmt.Errorf("the stream ended after %d of %d events: %w", events, o.Events, err)
	}
	one.Floor = float64(o.Events) / last.Sub(first).Seconds()
	return nil
}
