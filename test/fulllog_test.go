package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// One of a broker's two disks is full: Kafka takes it out of service, and half of the partitions with it. Breaks it
// catches: events of those partitions that are lost, doubled or dead, or that the other partitions wait for.
func TestFullDiskOfABrokerParksItsPartitionsOnly(t *testing.T) {
	t.Parallel()
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night: it starts a broker of its own")
	}
	if os.Geteuid() != 0 {
		t.Skip("a full disk is a small tmpfs, which only root can mount")
	}
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("SKIPPED, NOTHING WAS TESTED: no tmpfs can be mounted here: %v", err)
	}
	kept := t.TempDir()
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{Settings: map[string]string{
		"log.dirs":                 filepath.Join(kept, "data") + "," + filepath.Join(disk, "data"),
		"metadata.log.dir":         filepath.Join(kept, "data"),
		"log.index.size.max.bytes": "65536",
	}})
	t.Cleanup(func() {
		kafka.Nodes[0].Kill9()
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	s := startScenario(t, harness.Postgres(t), kafka)
	load := s.load(t, harness.Workload{Rate: 400, Writers: 2, PayloadBytes: 2000})
	load.WaitCommitted(t, 300, time.Minute)
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	harness.Eventually(t, 2*time.Minute, "events are parked",
		s.asking(t, "SELECT CASE WHEN count(*) > 100 THEN '' ELSE count(*) || ' are parked' END FROM cdc_relay_parked"))
	_, status := s.relay.Get(t, "/api/v1/status")
	t.Logf("status: %s", status)
	before := s.relay.Metric(t, "outbox_published_total")
	load.WaitCommitted(t, 300, time.Minute)
	harness.Eventually(t, time.Minute, "the others flow", func(context.Context) string {
		if n := s.relay.Metric(t, "outbox_published_total"); n < before+50 {
			return fmt.Sprintf("%v published, %v before", n, before)
		}
		return ""
	})
	s.relay.WaitReady(t, time.Minute)
	load.Stop(t)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	kafka.Nodes[0].Kill9() // it takes a disk back in at a start only
	kafka.Nodes[0].Start(t)
	s.relay.WaitReady(t, time.Minute)
	s.settled(t)
	s.judge(t, 0)
	if n := s.pg.Query(t, "SELECT count(*) FROM outbox_events_dlq"); n != "0" {
		t.Errorf("%s dead letters, want none", n)
	}
}
