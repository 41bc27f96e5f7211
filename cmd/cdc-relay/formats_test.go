package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// What Postgres prints of each type of payload becomes what the format promises, and the audit finds it again. Breaks
// it catches: the type of the column lost between catalog and router, a format that verify cannot read, an id that it
// looks for in the wrong header. The relay is killed in between, and must find in the topic, by their ids, what it has
// sent. Seen to fail with every payload taken for text, and with the topic read back by the header id.
func TestFormatsFromTableToAudit(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for _, c := range []struct{ format, payloadType, payload, want string }{
		{"envelope", "jsonb", `'{"b": [1, "é"],"a":null}'`, `"payload":{"a": null, "b": [1, "é"]}}`},
		{"envelope", "text", `E'a "b"\n'`, `"payload":"a \"b\"\n"}`},
		{"envelope", "bytea", `'\xfbff00'`, `"payload":"+/8A"}`},
		{"cloudevents", "bytea", `'\xfbff00'`, "\xfb\xff\x00"},
	} {
		t.Run(c.format+" of "+c.payloadType, func(t *testing.T) {
			s := newServices(t, orderTopic)
			s.environ = append(s.environ, "CDC_RELAY_MESSAGE_FORMAT="+c.format)
			s.pg.Exec(t, `CREATE TABLE outbox_events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				aggregate_type text, aggregate_id text, event_type text, payload `+c.payloadType+
				`, created_at timestamptz DEFAULT now(), published_at timestamptz)`)
			cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
			r := startRelay(t, s.environ)
			r.awaitStatus(t, `"role": "active"`) // these events are the stream's, not a catch-up's
			insert := `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
				SELECT 'order', (i % 3)::text, 'made', CASE WHEN i < 20 THEN ` + c.payload + `::` + c.payloadType +
				` END FROM generate_series(1, 20) i`
			s.pg.Exec(t, insert)
			settled(t, s.pg, "20")
			if err := r.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-r.done
			// As if the journal had been written after the kill: only the topic has these events.
			s.pg.Exec(t, `TRUNCATE cdc_relay_journal, cdc_relay_journal_batch; UPDATE cdc_relay_offset SET next_offset = 0
 WHERE partition >= 0`)
			r = startRelay(t, s.environ)
			s.pg.Exec(t, insert)
			settled(t, s.pg, "40")
			if code := r.stop(t, syscall.SIGTERM); code != exitDone {
				t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
			}
			values, tombstones := 0, 0
			harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(m *kgo.Record) {
				if m.Value == nil {
					tombstones++
					return
				}
				values++
				if !strings.HasSuffix(string(m.Value), c.want) || c.format == "envelope" && !json.Valid(m.Value) {
					t.Errorf("got value %q, want it to end in %q", m.Value, c.want)
				}
			})
			if values != 38 || tombstones != 2 {
				t.Errorf("got %d values and %d tombstones, want 38 and 2; log:\n%s", values, tombstones, r.log)
			}
			o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s")
			if v := verdictOf(t, o); o.code != exitDone || v.Rows != 40 || v.Records != 40 ||
				v.Missing+v.Different+v.Duplicated+v.OutOfOrder+v.Others+v.Unjudged != 0 {
				t.Errorf("audit: got exit code %d and %+v, want 40 rows, and 40 records without a difference", o.code, v)
			}
		})
	}
}
