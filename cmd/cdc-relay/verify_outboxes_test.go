package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two tenants have events with the same ids in one topic, which is deleted and made again. Breaks it catches: records
// of one outbox taken for those of the other; a key that {schema} is in taken for another one; a repair that publishes
// the other outbox's events, too, or to where another outbox's go. Seen to fail with the rows of the first outbox for
// each request, with {schema} of no outbox in the router of a repair, and in the audit.
func TestVerifyAndRepairOneOfSeveralOutboxes(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	cluster := harness.Kafka(t)
	topic := harness.Unique(t, "tenants") + ".order"
	cluster.CreateTopic(t, topic, 3, nil)
	s := services{pg: harness.Postgres(t)}
	s.environ = []string{
		"CDC_RELAY_POSTGRES_URL=" + s.pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(cluster.Addrs, ","),
		"CDC_RELAY_MESSAGE_TOPIC=" + topic, "CDC_RELAY_MESSAGE_KEY={schema}/{aggregate_id}",
		"CDC_RELAY_OUTBOX_TABLES=tenant_*.outbox_events",
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}
	tenant(t, s.pg, "tenant_1")
	tenant(t, s.pg, "tenant_2")
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	write(t, s.pg, "order", 1, 300, "tenant_1")
	write(t, s.pg, "order", 1, 200, "tenant_2")
	settled(t, s.pg, "500")
	want := func(of string, code int, v audit.Verdict, more ...string) {
		t.Helper()
		o := cdcRelay(t, s.environ, append([]string{"verify", "--json", "--wait=0s", "--outbox", of}, more...)...)
		got := verdictOf(t, o)
		if o.code != code || got.Rows != v.Rows || got.Records != v.Records || got.Lost != v.Lost ||
			got.Missing != v.Missing || got.Others+got.Different+got.Misplaced+got.Duplicated+got.OutOfOrder != 0 {
			t.Errorf("%s %v: got exit code %d and %+v, errors %s; want %d and %+v", of, more, o.code, got, o.errors, code, v)
		}
	}
	want("tenant_1", exitDone, audit.Verdict{Rows: 300, Records: 300})
	want("tenant_2.outbox_events", exitDone, audit.Verdict{Rows: 200, Records: 200})
	makeAnew(t, cluster, topic, 3)
	want("tenant_2", exitFailed, audit.Verdict{Rows: 200, Lost: 200, Missing: 200})
	want("tenant_2", exitDone, audit.Verdict{Rows: 200, Lost: 200, Missing: 200}, "--repair", "--yes")
	want("tenant_2", exitDone, audit.Verdict{Rows: 200, Records: 200})
	want("tenant_1", exitFailed, audit.Verdict{Rows: 300, Lost: 300, Missing: 300})
	cdcRelay(t, s.environ, "verify", "--repair", "--yes").want(t, exitUsage, nil, []string{"--outbox"})
	cdcRelay(t, s.environ, "verify", "--consumer", "c", "--outbox", "tenant_1").want(t, exitUsage, nil,
		[]string{"an inbox takes a uuid for the same event"})
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
}
