package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Three topics of a real Kafka lose records: one to its retention, one because it is deleted and made again, one a
// single record in the middle. Breaks it catches: what retention removed taken for a loss; a loss not seen, or not told
// from what is not published yet; a repair that leaves some out, publishes what is there, or is not asked for; a
// journal that names the places of the old topic. Seen to fail with the beginnings of the logs not looked at.
func TestVerifyTellsLossFromRetentionAndRepairsIt(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	cluster := harness.Kafka(t)
	prefix := harness.Unique(t, "repair")
	for _, name := range []string{"kept", "anew", "hole"} {
		cluster.CreateTopic(t, prefix+"."+name, 3, nil)
	}
	s := services{pg: harness.Postgres(t)}
	s.environ = []string{
		"CDC_RELAY_POSTGRES_URL=" + s.pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(cluster.Addrs, ","),
		"CDC_RELAY_MESSAGE_TOPIC=" + prefix + ".{aggregate_type}",
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT (ARRAY['kept', 'anew', 'hole'])[1 + i % 3], 'k' || i % 20, 'x', jsonb_build_object('n', i)
		FROM generate_series(1, 3000) i`)
	settled(t, s.pg, "3000")
	audit := func(args ...string) (audit.Verdict, outcome) {
		t.Helper()
		o := cdcRelay(t, s.environ, append([]string{"verify", "--json", "--wait=0s"}, args...)...)
		return verdictOf(t, o), o
	}

	removed := removeRecords(t, cluster, prefix+".kept")
	if v, o := audit(); o.code != exitDone || v.Expired != removed || v.Missing != 0 || v.Rows != 3000 || removed == 0 {
		t.Errorf("records removed by retention: got exit code %d and %+v, want %d expired and nothing missing", o.code, v,
			removed)
	}

	s.pg.Exec(t, `CREATE TEMP TABLE hole AS SELECT id, gen_random_uuid() AS other FROM outbox_events
 WHERE aggregate_type = 'hole' ORDER BY seq LIMIT 3;
		UPDATE outbox_events o SET id = h.other FROM hole h WHERE h.id = o.id; 
		UPDATE cdc_relay_journal j SET event_id = h.other FROM hole h WHERE h.id = event_id`)
	makeAnew(t, cluster, prefix+".anew", 3)
	v, o := audit()
	if o.code != exitFailed || v.Lost != 1003 || v.Missing != 1003 || v.Pending != 0 || v.Expired != removed ||
		v.Others != 3 || v.Repaired != nil {
		t.Errorf("a topic made anew and three records gone: got exit code %d and %+v, want 1 and 1003 lost", o.code, v)
	}
	cdcRelay(t, s.environ, "verify", "--repair").want(t, exitUsage, nil, []string{"pass --yes"})
	v, o = audit("--repair", "--yes", "--note", "made anew")
	if o.code != exitDone || v.Lost != 1003 || v.Repaired == nil || *v.Repaired != 1003 {
		t.Errorf("repair: got exit code %d and %+v, errors %s; want all 1003 repaired", o.code, v, o.errors)
	}
	if v, o := audit(); o.code != exitDone || v.Missing+v.Lost+v.Duplicated+v.Different+v.Misplaced+v.OutOfOrder != 0 ||
		v.Expired != removed || v.Records-v.Others != 3000-removed {
		t.Errorf("after the repair: got exit code %d and %+v, want nothing missing", o.code, v)
	}
	if got := s.pg.Query(t,
		"SELECT string_agg(DISTINCT kind || ' ' || note, ',') FROM cdc_relay_request"); got != "republish made anew" {
		t.Errorf("requests: got %q, want the repair with its note", got)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, r.log)
	}

	makeAnew(t, cluster, prefix+".anew", 3)
	if v, o := audit("--repair", "--yes"); o.code != exitFailed || v.Repaired == nil || *v.Repaired != 0 ||
		!strings.Contains(fmt.Sprint(v.Notes), "no relay is running on the slot") {
		t.Errorf("repair while no relay runs: got exit code %d and %+v, want it queued", o.code, v)
	}
	r = startRelay(t, s.environ)
	harness.Eventually(t, time.Minute, "the repair is done", func(context.Context) string {
		return s.pg.Query(t,
			"SELECT coalesce((SELECT min('request ' || id) FROM cdc_relay_request WHERE finished_at IS NULL), (SELECT "+
				"min(event_id || ' is parked') FROM cdc_relay_parked))")
	})
	if v, o := audit(); o.code != exitDone || v.Missing+v.Duplicated != 0 {
		t.Errorf("after the second repair: got exit code %d and %+v, want nothing missing", o.code, v)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
}

// published20 is a relay that has published 20 events, i from 1 on, to a topic of three partitions.
func published20(t *testing.T, payload string) (cluster *harness.Cluster, topic string, s services, r *running) {
	t.Helper()
	cluster = harness.Kafka(t)
	topic = harness.Unique(t, "repair") + ".order"
	cluster.CreateTopic(t, topic, 3, nil)
	s = services{pg: harness.Postgres(t)}
	s.environ = []string{
		"CDC_RELAY_POSTGRES_URL=" + s.pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(cluster.Addrs, ","),
		"CDC_RELAY_MESSAGE_TOPIC=" + topic,
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
	}
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r = startRelay(t, s.environ)
	s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'order', 'k' || i, 'x', to_jsonb(%s) FROM generate_series(1, 20) i`, payload))
	settled(t, s.pg, "20")
	return cluster, topic, s, r
}

// A topic is made again with a smaller limit than one of its lost events needs. Break it catches: an event that died in
// the repair called repaired. Seen to fail with dead letters not looked at.
func TestRepairDoesNotCountWhatDied(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	cluster, topic, s, r := published20(t, "repeat('x', CASE i WHEN 5 THEN 50000 ELSE 10 END)")
	makeAnew(t, cluster, topic, 3, "max.message.bytes", "5000")
	o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s", "--repair", "--yes")
	if v := verdictOf(t, o); o.code != exitFailed || v.Lost != 20 || v.Repaired == nil || *v.Repaired != 19 ||
		!strings.Contains(fmt.Sprint(v.Notes), "1 of the events became dead letters") {
		t.Errorf("got exit code %d and %+v, errors %s; want 19 of 20 repaired, and one dead", o.code, v, o.errors)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
}

// removeRecords deletes the first half of each partition, as retention does, and says how many records that are.
func removeRecords(t *testing.T, cluster *harness.Cluster, topic string) (n int) {
	t.Helper()
	admin := cluster.Admin(t)
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	upTo := kadm.Offsets{}
	ends.Each(func(o kadm.ListedOffset) {
		upTo.AddOffset(topic, o.Partition, o.Offset/2, -1)
		n += int(o.Offset / 2)
	})
	deleted, err := admin.DeleteRecords(t.Context(), upTo)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// makeAnew deletes a topic and creates it again, empty. The broker deletes in its own time.
func makeAnew(t *testing.T, cluster *harness.Cluster, topic string, partitions int32, config ...string) {
	t.Helper()
	settings := map[string]*string{}
	for i := 0; i < len(config); i += 2 {
		settings[config[i]] = &config[i+1]
	}
	harness.DeleteTopic(t, cluster.Addrs, topic)
	admin := cluster.Admin(t)
	harness.Eventually(t, time.Minute, "the topic is there again", func(ctx context.Context) string {
		if _, err := admin.CreateTopic(ctx, partitions, 1, settings, topic); err != nil {
			return err.Error()
		}
		return ""
	})
	harness.Eventually(t, time.Minute, "the topic is known", func(ctx context.Context) string {
		offsets, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = offsets.Error()
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
}

// The repair fails when an hour's look is done. Break it catches: what was found is lost with it. Seen to fail with the
// error alone.
func TestVerifyShowsWhatItFoundWhateverBecomesOfTheRepair(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.pg.Exec(t, events(5))
	settled(t, s.pg, "5")
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
	s.pg.Exec(t, `CREATE TEMP TABLE gone AS SELECT id, gen_random_uuid() AS other FROM outbox_events LIMIT 2;
		UPDATE outbox_events o SET id = g.other FROM gone g WHERE g.id = o.id;
		UPDATE cdc_relay_journal SET event_id = g.other FROM gone g WHERE g.id = event_id;
		ALTER TABLE cdc_relay_request ADD CHECK (kind <> 'republish')`)
	o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s", "--repair", "--yes")
	o.want(t, exitFailed, nil, []string{"cdc_relay_request"})
	if v := verdictOf(t, o); v.Lost != 2 {
		t.Errorf("got %+v, want 2 lost", v)
	}
}
