package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A dry run beside a relay to Kafka. Breaks it catches: logs among the messages, brokers asked for, a dry run that
// marks rows, uses up events of the real relay or makes its view call them published; one that may take the real one's
// slot. Seen to fail with a line of the log on standard output, and with any slot allowed.
func TestDryRunPrintsAndLeavesEverythingToTheRelay(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 SELECT 'order', (i % 5)::text, 'made', jsonb_build_object('n', i) FROM generate_series(1, 100) i`)

	var without []string
	for _, e := range s.environ {
		if !strings.HasPrefix(e, "CDC_RELAY_KAFKA") && !strings.HasPrefix(e, "CDC_RELAY_POSTGRES_SLOT") {
			without = append(without, e)
		}
	}
	cdcRelay(t, without, "run", "--sink", "stdout").want(t, exitUsage, nil,
		[]string{"postgres.slot", "postgres.schema", "outbox.after_publish", "_stdout", "!kafka.brokers"})
	dry := append(without, "CDC_RELAY_SINK=stdout", "CDC_RELAY_OUTBOX_AFTER_PUBLISH=keep",
		"CDC_RELAY_POSTGRES_SLOT="+harness.Unique(t, "look")+"_stdout", "CDC_RELAY_POSTGRES_SCHEMA=look_stdout")
	cdcRelay(t, dry, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, dry, "check").want(t, exitDone, []string{"sink: messages are printed", "!producer:"}, nil)
	cdcRelay(t, dry, "verify").want(t, exitUsage, nil, []string{"sink is stdout"})

	r := startRelay(t, dry)
	harness.Eventually(t, 30*time.Second, "rows in the dry run's journal", func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM look_stdout.cdc_relay_journal"); got != "100" {
			return "got " + got + ", want 100"
		}
		return ""
	})
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM, want 0; log:\n%s", code, r.log)
	}
	if !strings.Contains(r.log.String(), "go to no broker") {
		t.Errorf("the log does not warn:\n%s", r.log)
	}
	lines := bytes.Split(bytes.TrimSpace(r.cmd.Stdout.(*bytes.Buffer).Bytes()), []byte("\n"))
	if len(lines) != 100 {
		t.Fatalf("got %d lines, want 100", len(lines))
	}
	for i, text := range lines {
		var l struct {
			Topic  string
			Offset int
			Value  struct{ N int }
		}
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("line %q: %v", text, err)
		}
		if l.Topic != "outbox.event.order" || l.Offset != i || l.Value.N != i+1 {
			t.Fatalf("line %d: got %s, want topic outbox.event.order, offset %d, n %d: the order of commits", i, text, i, i+1)
		}
	}

	if got := s.pg.Query(t,
		"SELECT count(*) FROM outbox_events_status WHERE status = 'pending' AND published_at IS NULL"); got != "100" {
		t.Errorf("pending for the relay after the dry run: got %s, want 100", got)
	}
	real := startRelay(t, s.environ)
	settled(t, s.pg, "100")
	if code := real.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay to Kafka: got exit code %d, want 0; log:\n%s", code, real.log)
	}
}
