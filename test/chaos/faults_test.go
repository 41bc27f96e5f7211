package chaos

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// fault is one thing that goes wrong. begin makes it so and returns what ends it.
type fault struct {
	name   string
	target string // of two faults at once each has another one
	skips  bool   // the stream leaves rows out, which the relay finds in the table and publishes late
	begin  func(w *world) (end func())
}

// faults is everything that is done to the processes, the wires between them, and the relay's footing in the database.
var faults = []fault{
	{name: "relay killed", target: "relay", begin: func(w *world) func() { return w.killRelays(w.active()) }},
	{name: "both relays killed", target: "relay", begin: func(w *world) func() { return w.killRelays(w.relays...) }},
	{name: "relay stopped", target: "relay", begin: (*world).stopRelay},
	{name: "relay frozen", target: "relay", begin: func(w *world) func() {
		r := w.active()
		r.Freeze()
		return r.Thaw
	}},
	{name: "Postgres crashed", target: "postgres",
		begin: func(w *world) func() { return w.crashPostgres(w.pg.Server.Immediate) }},
	{name: "Postgres killed", target: "postgres",
		begin: func(w *world) func() { return w.crashPostgres(w.pg.Server.Kill9) }},
	{name: "Postgres shut down", target: "postgres",
		begin: func(w *world) func() { return w.crashPostgres(w.fastShutdown) }},
	{name: "Postgres frozen", target: "postgres", begin: func(w *world) func() {
		check(w.t, w.pg.Server.Freeze())
		return func() { check(w.t, w.pg.Server.Thaw()) }
	}},
	{name: "Postgres cut off", target: "postgres", begin: func(w *world) func() {
		w.wire.cut()
		return func() {}
	}},
	{name: "Postgres silent", target: "postgres", begin: func(w *world) func() { return w.wire.mute() }},
	{name: "Kafka killed", target: "kafka", begin: func(w *world) func() {
		n := w.node()
		n.Kill9()
		return func() { n.Start(w.t) }
	}},
	{name: "Kafka frozen", target: "kafka", begin: func(w *world) func() {
		n := w.node()
		n.Freeze()
		return n.Thaw
	}},
	{name: "Kafka cut off", target: "kafka", begin: func(w *world) func() {
		return w.disturb(cutproxy.InRequest, cutproxy.AfterDelivery, cutproxy.InAnswer, cutproxy.Late)
	}},
	{name: "Kafka silent", target: "kafka", begin: func(w *world) func() { return w.disturb(cutproxy.Withhold) }},
	{name: "table taken out of the publication", target: "postgres", skips: true, begin: func(w *world) func() {
		w.pg.Exec(w.t, "ALTER PUBLICATION "+w.publication()+" DROP TABLE outbox_events")
		return func() { w.pg.Exec(w.t, "ALTER PUBLICATION "+w.publication()+" ADD TABLE outbox_events") }
	}},
	{name: "publication dropped", target: "postgres", skips: true, begin: func(w *world) func() {
		w.pg.Exec(w.t, "DROP PUBLICATION "+w.publication())
		return func() {
			w.pg.Exec(w.t, "CREATE PUBLICATION "+w.publication()+" FOR TABLE outbox_events WITH (publish = 'insert')")
		}
	}},
	{name: "slot dropped", target: "postgres", skips: true, begin: (*world).dropSlot},
}

// killRelays kills and, to end it, starts them again.
func (w *world) killRelays(relays ...*harness.Relay) func() {
	for _, r := range relays {
		r.Kill9()
	}
	return func() { w.startRelays() }
}

func (w *world) stopRelay() func() {
	r := w.active()
	r.Signal(syscall.SIGTERM)
	return func() {
		r.Wait(w.t, time.Minute)
		w.startRelays()
	}
}

func (w *world) crashPostgres(crash func() error) func() {
	check(w.t, crash())
	return func() { check(w.t, w.pg.Server.Start(w.t.Context())) }
}

// fastShutdown must not wait for the relay forever, whatever else is broken.
func (w *world) fastShutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return w.pg.Server.Fast(ctx)
}

// disturb does one of these to every fourth produce request until it is ended.
func (w *world) disturb(kinds ...cutproxy.Kind) func() {
	w.disturbing.Store(&kinds)
	return func() { w.disturbing.Store(nil) }
}

// dropSlot drops the slot while it is streamed.
func (w *world) dropSlot() func() {
	slot := w.settings.Slot()
	conn := w.pg.Connect(w.t)
	defer func() { _ = conn.Close(context.WithoutCancel(w.t.Context())) }()
	harness.Eventually(w.t, time.Minute, "the slot is dropped", func(ctx context.Context) string {
		_,
			err := conn.Exec(ctx,
			fmt.Sprintf(
				`SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots WHERE slot_name = '%s' AND active`, slot))
		if err == nil {
			_,
				err = conn.Exec(ctx,
				fmt.Sprintf(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '%s'`, slot))
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return func() {}
}

// policy is the proxy's: it may be asked by many connections, one at a time.
func (w *world) policy() cutproxy.Policy {
	const produce = 0 // the api key
	var mu sync.Mutex
	n := 0
	return func(r cutproxy.Request) cutproxy.Action {
		kinds := w.disturbing.Load()
		if kinds == nil || r.APIKey != produce {
			return cutproxy.Action{}
		}
		mu.Lock()
		defer mu.Unlock()
		if n++; n%4 != 0 {
			return cutproxy.Action{}
		}
		return cutproxy.Action{Kind: (*kinds)[n/4%len(*kinds)], Delay: 200 * time.Millisecond}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
