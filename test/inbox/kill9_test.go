package inbox

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// groups are the broker's settings that let it notice a dead member within seconds.
var groups = map[string]string{
	"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0",
	"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000",
	"group.consumer.min.heartbeat.interval.ms": "1000", "group.consumer.heartbeat.interval.ms": "1000",
}

func ownKafka(t *testing.T) *harness.Cluster {
	t.Helper()
	return harness.NewOwnKafka(t, harness.KafkaConfig{Settings: groups})
}

func count(ci, night int) int {
	if os.Getenv("CDC_RELAY_NIGHTLY") == "1" {
		return night
	}
	return ci
}

// produceSlowly writes events at a rate until they are all there; one in a thousand fails permanently.
func produceSlowly(t *testing.T, addrs []string, topic string, events, keys int, d time.Duration) (permanent int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	failed := make(chan error, 1)
	for n := 0; n < events; {
		<-tick.C
		for ; n < events && time.Since(began) >= d*time.Duration(n)/time.Duration(events); n++ {
			record := event(topic, n, keys)
			if n%1000 == 500 {
				record.Value = fmt.Appendf(nil, `{"seq": %d, "fails": "permanent"}`, n)
				permanent++
			}
			client.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("produce: %v", err)
	default:
	}
	return permanent
}

// Consumers, the broker and Postgres are killed and frozen; one event in a hundred fails, one in a thousand
// permanently. Seen to fail with a claim that returns no conflicts: 21,113 effects of 19,980 events, 1,133 of them out
// of order.
func TestKillsLoseDoubleAndDisorderNothing(t *testing.T) {
	for name, protocol := range map[string]bool{"classic": false, "consumer": true} {
		t.Run(name, func(t *testing.T) {
			faults, events := count(6, 100), count(20_000, 500_000)
			if protocol {
				faults, events = count(2, 100), count(7_000, 500_000)
			}
			pg := harness.NewOwnPostgres(t, embedded.PostgresConfig{})
			pg.Exec(t, effects)
			kafka := ownKafka(t)
			topic := kafka.Topic(t, "order", 6, nil)
			const keys = 100
			config := childConfig{URL: pg.URL, Brokers: kafka.Addrs, Topic: topic, Protocol: protocol, Flaky: 0.01}
			var consumers []*process
			for range 3 {
				consumers = append(consumers, startProcess(t, config))
			}
			done := make(chan int, 1)
			go func() {
				done <- produceSlowly(t, kafka.Addrs, topic, events, keys, time.Duration(faults)*5*time.Second)
			}()
			for n := range faults {
				breakOne(t, n, consumers[n%3], pg, kafka)
			}
			permanent := <-done
			until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
			for _, p := range consumers {
				p.stop()
			}
			if got := pg.Query(t, "SELECT count(*) FROM inbox_dead"); got != fmt.Sprint(permanent) {
				t.Errorf("dead letters: got %s, want %d", got, permanent)
			}
			judge(t, pg, events-permanent)
		})
	}
}

// breakOne does the run's next harm, and undoes it.
func breakOne(t *testing.T, n int, p *process, pg *harness.PG, kafka *harness.Cluster) {
	t.Helper()
	pause := time.NewTimer(2 * time.Second)
	<-pause.C
	switch n % 6 {
	case 0, 3:
		p.kill()
		p.start()
	case 1, 4: // longer than the group's patience, and than the server's with a transaction
		p.signal(syscall.SIGSTOP)
		pause.Reset(8 * time.Second)
		<-pause.C
		p.signal(syscall.SIGCONT)
	case 2:
		if err := pg.Server.Kill9(); err != nil {
			t.Errorf("kill Postgres: %v", err)
		}
		if err := pg.Server.Start(t.Context()); err != nil {
			t.Errorf("start Postgres: %v", err)
		}
	case 5:
		kafka.Kill9()
		kafka.Start(t)
	}
}
