package redis_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Master and Sentinels have passwords of their own, and one Sentinel is away. Breaks it catches: the master's password
// told to the Sentinels, or theirs to it; a Sentinel that is away, or silent, taken for all; a wrong name, or password,
// that is waited for as if it passed by itself. Seen to fail with every error the cluster's, and, by not ending, with
// the master's password told to the Sentinels, and with as much time for the first Sentinel as for all.
func TestSentinelsNameTheMaster(t *testing.T) {
	b := newStreamBed(t, "--requirepass", "of-redis")
	sentinels := harness.RedisSentinels(t, "main", b.server, "sentinel auth-pass main of-redis",
		"requirepass of-sentinels", "sentinel sentinel-pass of-sentinels")
	sentinels[0].Kill9()
	var urls []string
	for _, s := range sentinels {
		urls = append(urls, "redis://"+s.Addr)
	}
	files := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(files, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flow := func(master, password string) *sinktest.Flow {
		d, err := redis.NewStreams(redis.StreamsConfig{
			URL: strings.Join(urls, ","), PasswordFile: file("redis", "of-redis"), RequestTimeout: 2 * time.Second,
			Sentinel: redisconn.Sentinel{Master: master, PasswordFile: file(password, password)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return sinktest.NewFlow(t, d)
	}
	topic := b.topic(t)
	flow("main", "of-sentinels").Send(sinktest.Events(topic, 0, 50))
	if err := b.client.Do(t.Context(), "AUTH", "of-redis").Err(); err != nil {
		t.Fatal(err)
	}
	sinktest.WantOnceInOrder(t, b.read(t, topic), 50)

	sentinels[0].Start(t) // one that does not answer might know more
	sentinels[0].Freeze()
	silent := b.topic(t)
	began := time.Now()
	flow("main", "of-sentinels").Send(sinktest.Events(silent, 0, 50))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("with a silent Sentinel it took %v", took)
	}
	sinktest.WantOnceInOrder(t, b.read(t, silent), 50)
	sentinels[0].Thaw()
	for _, c := range []struct{ master, password, says string }{
		{"other", "of-sentinels", "it watches no master of this name: correct redis.sentinel.master"},
		{"main", "wrong", "WRONGPASS"},
	} {
		f := flow(c.master, c.password)
		if _, err := f.Submit(t.Context(), sinktest.Events("any", 0, 1)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, 20*time.Second, "the engine is blocked", func(context.Context) string {
			if s := f.Status(); s.State != sink.Blocked || !strings.Contains(s.Reason, c.says) {
				return fmt.Sprintf("%+v, want %q", s, c.says)
			}
			return ""
		})
	}
}
