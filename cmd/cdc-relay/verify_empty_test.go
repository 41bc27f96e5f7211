package main

import (
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// An empty payload is a value of no bytes, NULL is a tombstone, and a consumer sees the difference. Breaks it catches:
// an audit to which both are the same, either way: a correct empty payload called different, or a tombstone passed for
// one. Seen to fail with the value of an empty record read as null, and with null read as empty.
func TestVerifyTellsAnEmptyPayloadFromNone(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for _, payloadType := range []string{"text", "bytea"} {
		t.Run(payloadType, func(t *testing.T) {
			s := newServices(t, orderTopic)
			s.pg.Exec(t, `CREATE TABLE outbox_events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
				aggregate_type text, aggregate_id text, event_type text, payload `+payloadType+
				`, created_at timestamptz DEFAULT now(), published_at timestamptz)`)
			cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
			r := startRelay(t, s.environ)
			s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('order', '1', 'full', 'x'), ('order', '1', 'empty', ''), ('order', '1', 'none', NULL)`)
			settled(t, s.pg, "3")
			if code := r.stop(t, syscall.SIGTERM); code != exitDone {
				t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
			}
			var lengths []int // -1: null
			harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(m *kgo.Record) {
				if lengths = append(lengths, len(m.Value)); m.Value == nil {
					lengths[len(lengths)-1] = -1
				}
			})
			if len(lengths) != 3 || lengths[0] != 1 || lengths[1] != 0 || lengths[2] != -1 {
				t.Fatalf("lengths of the values: got %v, want 1, 0 and null", lengths)
			}
			o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s")
			if v := verdictOf(t, o); o.code != exitDone || v.Records != 3 || v.Different != 0 {
				t.Errorf("got exit code %d and %+v, want no difference", o.code, v)
			}
			s.pg.Exec(t, `UPDATE outbox_events SET payload = CASE event_type WHEN 'none' THEN ''::`+payloadType+
				` END WHERE event_type <> 'full'`)
			o = cdcRelay(t, s.environ, "verify", "--json", "--wait=0s")
			if v := verdictOf(t, o); o.code != exitFailed || v.Different != 2 {
				t.Errorf("empty made NULL and NULL made empty: got exit code %d and %+v, want 2 different", o.code, v)
			}
		})
	}
}
