package inbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A process freezes in the middle of a transaction, longer than its session. Its partitions go on elsewhere within
// twelve seconds, each key of them; the others are not touched. Then it thaws, and what it had begun has no effect.
// Seen to fail with sessions that may stand still in a transaction for as long as they like.
func TestAFrozenOwnerGivesItsPartitionsBack(t *testing.T) {
	harness.Full(t)
	kafka := ownKafka(t)
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most, tries = 5, 2 // a busy machine may keep another member from its heartbeats, too
			for try := 1; ; try++ {
				if others := freezeAnOwner(t, kafka, protocol); others <= most {
					return
				} else if try == tries {
					t.Fatalf("a key of the others stood still for %.2f s, %d times in a row for more than %d", others, tries, most)
				}
			}
		})
	}
}

// freezeAnOwner returns for how many seconds a key of the others' partitions stood still.
func freezeAnOwner(t *testing.T, kafka *harness.Cluster, protocol bool) (stood float64) {
	t.Helper()
	pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
	pg.Exec(t, effects)
	topic := kafka.Topic(t, "order", 6, nil)
	once := filepath.Join(t.TempDir(), "frozen")
	config := childConfig{URL: pg.URL, Brokers: kafka.Addrs, Topic: topic, Protocol: protocol, Once: once}
	var consumers []*process
	for range 3 {
		consumers = append(consumers, startProcess(t, config))
	}
	const keys, rate = 60, 100
	events := rate * 30
	done := make(chan int, 1)
	go func() { done <- produceSlowly(t, kafka.Addrs, topic, events, keys, 30*time.Second) }()
	until(t, pg, "SELECT count(DISTINCT process) FROM effect WHERE at > now() - interval '1 second'", "3")
	id := "019aa7e4-0000-7000-8000-ffffffffffff"
	produce(t, kafka.Addrs, eventOf(topic, "k0", id, payload{Seq: 1 << 20, Fails: "freeze"}))
	frozen := whoIsFrozen(t, consumers)
	since := pg.Query(t, "SELECT clock_timestamp()")
	pid := frozen.command.Process.Pid
	mine := pg.Query(t, fmt.Sprintf(`SELECT string_agg(partition::text, ',') FROM (
		SELECT DISTINCT ON (partition) partition, process FROM effect ORDER BY partition, n DESC) last
		WHERE process = %d`, pid))
	if mine == "" {
		t.Fatal("the frozen one had no partition")
	}
	events++
	permanent := <-done
	frozen.signal(syscall.SIGCONT)
	until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
	for _, p := range consumers {
		p.stop()
	}
	gap := func(which string) string {
		return pg.Query(t, fmt.Sprintf(`SELECT coalesce(max(extract(epoch FROM at - before)), 0)::numeric(6, 2) FROM (
			SELECT at, lag(at) OVER (PARTITION BY key ORDER BY at) AS before FROM effect
			WHERE at > '%s'::timestamptz - interval '2 s' AND partition %s (%s)) gaps`, since, which, mine))
	}
	own, others := gap("IN"), gap("NOT IN")
	t.Logf("keys of partitions %s, the frozen one's, stood still for %s s, the others for %s s", mine, own, others)
	if seconds(t, own) > 12 {
		t.Errorf("a key of its partitions stood still for %s s, want at most 12", own)
	}
	pg.Exec(t, "DELETE FROM effect WHERE event = '"+id+"'") // its number is not in its key's sequence
	judge(t, pg, events-1-permanent)
	return seconds(t, others)
}

func whoIsFrozen(t *testing.T, consumers []*process) (frozen *process) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "one is frozen", func(context.Context) string {
		for _, p := range consumers {
			if stopped(p) {
				frozen = p
				return ""
			}
		}
		return "none"
	})
	return frozen
}

func seconds(t *testing.T, text string) (s float64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// stopped reports whether a process stands still by a signal.
func stopped(p *process) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "T")
}
