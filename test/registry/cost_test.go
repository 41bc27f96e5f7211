package registry_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/bench"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// An order of 15 values in some 315 bytes of jsonb, of the event i of batch b, and its schema in each format.
const anOrder = `jsonb_build_object('id', gen_random_uuid(), 'number', b * 100 + i,
	'customer', jsonb_build_object('id', i, 'name', 'Zoë Müller', 'vip', i % 2 = 0),
	'total', i + 0.5, 'currency', 'EUR', 'note', NULL,
	'lines', jsonb_build_array(jsonb_build_object('sku', 'A-1', 'quantity', 1, 'price', 0.25),
	jsonb_build_object('sku', 'B-22', 'quantity', i, 'price', 9.75)), 'placed_at', '2026-11-24T18:30:00Z')`

var orders = []format{
	{name: config.FormatPlain},
	{name: config.FormatAvro, kind: "AVRO", schema: `{"type": "record", "name": "Order", "fields": [
		{"name": "id", "type": "string"}, {"name": "number", "type": "long"}, {"name": "customer", "type": {"type": "record",
		"name": "Customer", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"},
		{"name": "vip", "type": "boolean"}]}}, {"name": "total", "type": "double"}, {"name": "currency", "type": "string"},
		{"name": "note", "type": ["null", "string"]}, {"name": "lines", "type": {"type": "array", "items":
		{"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "int"},
		{"name": "price", "type": "double"}]}}},
		{"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}`},
	{name: config.FormatProtobuf, kind: "PROTOBUF", schema: `syntax = "proto3";
		message Order { string id = 1; int64 number = 2; message Customer { int64 id = 1; string name = 2; bool vip = 3; }
		Customer customer = 3; double total = 4; string currency = 5; string note = 6;
		message Line { string sku = 1; int32 quantity = 2; double price = 3; } repeated Line lines = 7;
		string placed_at = 8; }`},
	{name: config.FormatJSONSchema, kind: "JSON", schema: `{"$schema": "http://json-schema.org/draft-07/schema#",
		"type": "object", "required": ["id", "number", "customer", "total", "lines"], "additionalProperties": false,
		"properties": {"id": {"type": "string"}, "number": {"type": "integer"}, "customer": {"type": "object", "properties":
		{"id": {"type": "integer"}, "name": {"type": "string"}, "vip": {"type": "boolean"}}}, "total": {"type": "number"},
		"currency": {"type": "string"}, "note": {"type": ["string", "null"]}, "lines": {"type": "array", "items":
		{"type": "object", "required": ["sku", "quantity", "price"]}}, "placed_at": {"type": "string"}}}`},
}

const (
	rowsOfTransaction = 100
	turns             = 3
	// cpuMost is how many times the processor time of a plain event one of a format may take.
	cpuMost = 15
)

// figures are the costs of one format's drains.
type figures struct{ rate, cpu []float64 }

// What the formats cost beside plain: a backlog of each, drained in turns, on one machine. Break it catches: a format
// that takes many times what it does today. Seen to fail with each value made 31 times.
func TestWhatTheFormatsCostBesidePlain(t *testing.T) {
	events := harness.Count(t, "events of formats measured")
	if events == 0 {
		t.Skip("a measurement, for the night: CDC_RELAY_NIGHTLY=1")
	}
	registry := harness.NewRegistry(t)
	lines, got := make([]*line, len(orders)), make([]figures, len(orders))
	for n, f := range orders {
		lines[n] = newDrain(t, f, registry)
	}
	t.Logf("load %s", harness.LoadAverage())
	for turn := range turns {
		for i := range lines {
			n := (i + turn) % len(lines)
			rate, cpu := lines[n].drain(t, turn, events)
			got[n].rate, got[n].cpu = append(got[n].rate, rate), append(got[n].cpu, cpu)
		}
	}
	t.Logf("load %s; %d events in each of %d turns, 100 rows in a transaction", harness.LoadAverage(), events, turns)
	for n, l := range lines {
		rates, cpus := got[n].beside(got[0])
		t.Logf("%-11s events/s %s, / plain %s; CPU s per million of the relay %s, / plain %s",
			l.name, spread("%.0f", got[n].rate), spread("%.2f", rates), spread("%.1f", got[n].cpu), spread("%.1f", cpus))
		if median := bench.Summarize(cpus).Median; median > cpuMost {
			t.Errorf("%s takes %.1f times the processor time of plain, want at most %d", l.name, median, cpuMost)
		}
	}
}

// newDrain is a line whose orders have one schema, whatever their topic.
func newDrain(t *testing.T, f format, registry *harness.Registry) *line {
	t.Helper()
	l := &line{format: f, registry: registry, pg: harness.Postgres(t), kafka: harness.Kafka(t)}
	l.settings = harness.NewSettings(t, l.pg, l.kafka.Addrs).With("message.format", f.name, "outbox.after_publish", "keep")
	if f.kind != "" {
		l.settings = l.settings.With("registry.url", registry.URL, "registry.subject", "measured-"+f.name)
		registry.Register(t, "measured-"+f.name, f.kind, f.schema)
	}
	for turn := range turns {
		l.kafka.CreateTopic(t, l.settings.Topic(turnType(turn)), 12,
			map[string]string{"message.timestamp.type": "LogAppendTime"})
	}
	l.relay = harness.StartRelay(t, l.settings)
	return l
}

func turnType(turn int) string { return fmt.Sprintf("turn%d", turn) }

// drain lets the relay have a backlog, and gives the events per second between the first and the last record by the
// broker's clock, and the relay's CPU seconds per million events until all are journaled.
func (l *line) drain(t *testing.T, turn, events int) (rate, cpu float64) {
	t.Helper()
	l.ask(t, "pause", "--note", "a backlog")
	l.pg.Exec(t, fmt.Sprintf(`DO $$ BEGIN FOR b IN 1..%d LOOP
		INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
		SELECT gen_random_uuid(), '%s', 'k' || (b * 7 + i) %% 10000, 'made', %s FROM generate_series(1, %d) i; COMMIT;
		END LOOP; END $$`, events/rowsOfTransaction, turnType(turn), anOrder, rowsOfTransaction))
	l.pg.Exec(t, "CHECKPOINT")
	before := harness.CPU(l.relay.PID())
	l.ask(t, "resume")
	l.pg.WaitConfirmed(t, l.settings.Slot(), patience) // what is confirmed is journaled
	used := harness.CPU(l.relay.PID()) - before
	if n, want := l.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"), fmt.Sprint((turn+1)*events); n != want {
		t.Fatalf("%s: got %s events in the journal, want %s", l.name, n, want)
	}
	var first, last time.Time
	records := 0
	harness.Consume(t, l.kafka.Addrs, []string{l.settings.Topic(turnType(turn))}, func(r *kgo.Record) {
		if records++; first.IsZero() || r.Timestamp.Before(first) {
			first = r.Timestamp
		}
		if r.Timestamp.After(last) {
			last = r.Timestamp
		}
	})
	if records != events {
		t.Fatalf("%s: got %d records, want %d", l.name, records, events)
	}
	return float64(events) / last.Sub(first).Seconds(), used.Seconds() / float64(events) * 1e6
}

// ask runs a command of the relay, which must succeed.
func (l *line) ask(t *testing.T, args ...string) {
	t.Helper()
	if code, _, said := l.relay.Run(t, args...); code != 0 {
		t.Fatalf("%v: exit code %d, %s", args, code, said)
	}
}

// beside is each figure divided by the other's of the same turn.
func (f figures) beside(plain figures) (rate, cpu []float64) {
	for turn := range f.rate {
		rate = append(rate, f.rate[turn]/plain.rate[turn])
		cpu = append(cpu, f.cpu[turn]/plain.cpu[turn])
	}
	return rate, cpu
}

// spread is the median of the values, and the lowest and the highest.
func spread(form string, values []float64) string {
	s := bench.Summarize(values)
	return fmt.Sprintf(form+" ("+form+"–"+form+")", s.Median, s.Min, s.Max)
}
