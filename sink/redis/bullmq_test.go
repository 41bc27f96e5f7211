package redis_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// queueBed is a server with a proxy before it.
type queueBed struct {
	server *harness.RedisServer
	proxy  *cutproxy.Plain
	client goredis.UniversalClient // past the proxy
	config redis.BullMQConfig
	count  int
}

func newQueueBed(t *testing.T, settings ...string) *queueBed {
	t.Helper()
	b := &queueBed{server: harness.Redis(t, settings...)}
	b.proxy = cutproxy.StartPlain(t, b.server.Addr)
	b.client = goredis.NewClient(&goredis.Options{Addr: b.server.Addr, Protocol: 2})
	t.Cleanup(func() { _ = b.client.Close() })
	b.config = redis.BullMQConfig{URL: "redis://" + b.proxy.Addr, RequestTimeout: 2 * time.Second, JobName: "{id}",
		JobID: "{id}", IDHeader: "id", Unrecorded: 10_000}
	return b
}

func (b *queueBed) topic(*testing.T) string {
	b.count++
	return fmt.Sprintf("queue-%d", b.count)
}

func (b *queueBed) driver(t *testing.T) *redis.BullMQ {
	t.Helper()
	d, err := redis.NewBullMQ(b.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // of a test that is skipped
	return d
}

// read returns the jobs that wait, by the rules of the package's documentation.
func (b *queueBed) read(t *testing.T, topic string) (found []sinktest.Message) {
	t.Helper()
	jobs := cmp.Or(b.config.Prefix, "bull") + ":" + topic + ":"
	ids, err := b.client.LRange(t.Context(), jobs+"wait", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(ids)
	for i, id := range ids {
		hash, err := b.client.HGetAll(t.Context(), jobs+id).Result()
		if err != nil || len(hash) == 0 {
			t.Fatalf("job %s: got %v, %v", id, hash, err)
		}
		m := sinktest.Message{Topic: topic, Offset: int64(i + 1), Value: []byte(hash["data"])}
		if _, err := fmt.Sscan(hash["timestamp"], &m.Timestamp); err != nil {
			t.Fatal(err)
		}
		var opts struct {
			Outbox struct {
				Encoding string
				Key      json.RawMessage
				Headers  json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(hash["opts"]), &opts); err != nil {
			t.Fatalf("options %s: %v", hash["opts"], err)
		}
		m.Key = value(t, opts.Outbox.Key)
		m.Headers = headers(t, opts.Outbox.Headers)
		switch opts.Outbox.Encoding {
		case "tombstone":
			m.Value = nil
		case "text":
			m.Value = value(t, m.Value)
		case "base64":
			m.Value = decoded(t, string(value(t, m.Value)))
		}
		found = append(found, m)
	}
	return found
}

func headers(t *testing.T, text []byte) (h outbox.Headers) {
	in := json.NewDecoder(bytes.NewReader(text))
	for {
		name, err := in.Token()
		if err != nil {
			t.Fatal(err)
		}
		if name, is := name.(string); is {
			var one json.RawMessage
			if err := in.Decode(&one); err != nil {
				t.Fatal(err)
			}
			h.Add(name, value(t, one))
		}
		if name == json.Delim('}') {
			return h
		}
	}
}

// value encodes bytes in JSON: a string, nothing, or base64.
func value(t *testing.T, text []byte) []byte {
	var s any
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	switch s := s.(type) {
	case string:
		return []byte(s)
	case map[string]any:
		return decoded(t, s["base64"].(string))
	}
	return nil
}

func decoded(t *testing.T, text string) []byte {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spoil puts a value of another type in the place of the relay's notes of the queue, and the notes back.
func (b *queueBed) spoil(t *testing.T, topic string) func() {
	must := func(arguments ...any) {
		if err := b.client.Do(t.Context(), arguments...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	notes := "cdc-relay:" + cmp.Or(b.config.Prefix, "bull") + ":" + topic + ":notes"
	must("RENAME", notes, "kept:"+notes)
	must("SET", notes, "a string")
	return func() { must("RENAME", "kept:"+notes, notes) }
}

// TestBullMQConformance runs the suite of all drivers on a real server behind a proxy that cuts, for the keys of both
// libraries. Breaks it catches: see there. Seen to fail with the key left out, and without reading back.
func TestBullMQConformance(t *testing.T) {
	for _, library := range []string{redis.LibraryBullMQ, redis.LibraryBull} {
		t.Run(library, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = library
			b.config.JobID = "" // the suite gives two records the same id
			sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
				return sinktest.Fixture{
					Driver:       b.driver(t),
					Topic:        func(t *testing.T, _ int) string { return b.topic(t) },
					Read:         b.read,
					Deduplicates: true,
					LoseAnswers:  b.proxy.LoseAnswers,
					Outage:       b.proxy.Outage,
					Ruins:        map[string]func(*testing.T, string) func(){"WrongType": b.spoil},
				}
			})
		})
	}
}

// Connections break before, in and after requests, while others add to the queue, and the server is killed. Breaks it
// catches: a job lost, doubled or out of order by an unknown outcome. Seen to fail without reading back.
func TestBullMQCutsLoseDoubleAndReorderNothing(t *testing.T) {
	harness.Full(t)
	b := newQueueBed(t, "--appendfsync", "always")
	topic := b.topic(t)
	b.config.JobID = "" // so that no id of a job hides what comes again
	f := sinktest.NewFlow(t, b.driver(t))
	const n = 20_000
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Send(sinktest.Events(topic, 0, n))
	}()
	turn := 0
	cutproxy.Disturb(b.proxy, f.Progress, done, func() {
		if turn++; turn == 3 {
			b.server.Kill9()
			b.server.Start(t)
		}
	})
	t.Logf("%d connections were cut", b.proxy.Cuts())
	if b.proxy.Cuts() == 0 {
		t.Error("no connection was cut")
	}
	sinktest.WantOnceInOrder(t, b.read(t, topic), n)
}

// A relay dies and leaves events that no one recorded; the next one reads them back and goes on, while the first, which
// was only frozen, wakes up and sends on. Breaks it catches: an event sent again that was read back; one that came
// between the look and the first script; the frozen relay's events in between. Seen to fail with Tail that does not
// start the log.
func TestBullMQSuccessorAndFrozenRelayMakeNoDuplicates(t *testing.T) {
	harness.Full(t)
	b := newQueueBed(t)
	topic := b.topic(t)
	b.config.JobID = "" // so that no id of a job hides what comes again
	frozen := sinktest.NewFlow(t, b.driver(t))
	first := sinktest.Events(topic, 0, 2500)
	frozen.Send(first)
	heir := b.driver(t)
	var read int
	query := sink.TailQuery{Topic: topic, From: map[int32]int64{0: first[99].Offset + 1},
		Headers: [sink.TailHeaders]string{"id", "x-none", ""}}
	err := heir.Tail(t.Context(), query, func(r sink.TailRecord) error {
		want := first[100+read]
		if string(r.Headers[0]) != fmt.Sprint(100+read) || r.Headers[1] != nil || r.Offset != want.Offset {
			t.Errorf("record %d: got id %s at %d, want it at %d", 100+read, r.Headers[0], r.Offset, want.Offset)
		}
		read++
		return nil
	})
	if err != nil || read != 2400 {
		t.Fatalf("tail: got %d records, %v; want 2400", read, err)
	}
	frozen.Send(sinktest.Events(topic, 2500, 300)) // it wakes up before the heir has sent anything
	second := sinktest.NewFlow(t, heir)
	second.Send(sinktest.Events(topic, 2500, 1000))
	frozen.Send(sinktest.Events(topic, 2800, 200)) // and once more
	second.Send(sinktest.Events(topic, 3500, 10))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 3510)
}

// Breaks it catches: a counter that went back and no one is told of. Seen to fail with the alarm not kept.
func TestLostCounterRaisesAnAlarm(t *testing.T) {
	b := newQueueBed(t)
	topic := b.topic(t)
	d := b.driver(t)
	f := sinktest.NewFlow(t, d)
	f.Send(sinktest.Events(topic, 0, 10))
	if err := b.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f.Send(sinktest.Events(topic, 0, 5))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 5)
	if a := d.Alarms(); len(a) != 1 || a[0].Kind != sink.AlarmOffsetsWentBack || a[0].Topic != topic {
		t.Errorf("alarms: got %+v, want one of the queue", a)
	}
}

// inTrouble waits until the topic, and nothing wider, is in trouble for a reason with the text.
func inTrouble(t *testing.T, f *sinktest.Flow, text string) {
	t.Helper()
	harness.Eventually(t, 20*time.Second, "the topic is in trouble: "+text, func(context.Context) string {
		for _, r := range f.Troubles() {
			if r.Kind == sink.TopicTrouble && strings.Contains(r.Reason, text) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.Troubles())
	})
}

// Breaks it catches: jobs added to a queue whose workers do not see them, or that is none; an error of the wrong kind.
// Seen to fail with every error the cluster's.
func TestForeignQueueIsTheTopicsTrouble(t *testing.T) {
	for _, c := range []struct {
		name, library, trouble string
		make                   []string // a command
	}{
		{"no queue", redis.LibraryBullMQ, "WRONGTYPE", []string{"SET", "bull:%s:wait", "x"}},
		{"a later library", redis.LibraryBullMQ, "bullmq:7.0.1", []string{"HSET", "bull:%s:meta", "version", "bullmq:7.0.1"}},
		{"an earlier library", redis.LibraryBullMQ, "bullmq:4.9.0",
			[]string{"HSET", "bull:%s:meta", "version", "bullmq:4.9.0"}},
		{"paused by who knows", redis.LibraryBullMQ, "opened last by", []string{"HSET", "bull:%s:meta", "paused", "1"}},
		{"BullMQ's for Bull", redis.LibraryBull, "bullmq:6.7.0", []string{"HSET", "bull:%s:meta", "version", "bullmq:6.7.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newQueueBed(t)
			b.config.Library = c.library
			topic := b.topic(t)
			command := []any{c.make[0], fmt.Sprintf(c.make[1], topic)}
			for _, word := range c.make[2:] {
				command = append(command, word)
			}
			if err := b.client.Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
			f := sinktest.NewFlow(t, b.driver(t))
			if _, err := f.Submit(t.Context(), sinktest.Events(topic, 0, 3)); err != nil {
				t.Fatal(err)
			}
			inTrouble(t, f, c.trouble)
			if left := b.client.Keys(t.Context(), "bull:"+topic+":id-*").Val(); len(left) != 0 {
				t.Errorf("got the jobs %v, want none", left)
			}
		})
	}
}

// A user may not run one of the script's commands; then it may. Breaks it catches: a job that the failed script left
// and no one takes, because it is taken for one that was added before; one that is there twice. Seen to fail with any
// job that is there taken for added.
func TestScriptThatFailsInTheMiddleIsMadeGood(t *testing.T) {
	for _, denied := range []string{"hset", "xadd", "zadd", "lpush", "ltrim", "set", "incrby"} {
		t.Run(denied, func(t *testing.T) {
			b := newQueueBed(t)
			topic := b.topic(t)
			user := func(rules ...string) {
				t.Helper()
				if err := b.client.ACLSetUser(t.Context(), "relay", append([]string{"on", "nopass", "~*"}, rules...)...).
					Err(); err != nil {
					t.Fatal(err)
				}
			}
			user("+@all", "-"+denied)
			b.config.URL = strings.Replace(b.config.URL, "redis://", "redis://relay:x@", 1)
			f := sinktest.NewFlow(t, b.driver(t))
			if _, err := f.Submit(t.Context(), sinktest.Events(topic, 0, 150)); err != nil {
				t.Fatal(err)
			}
			inTrouble(t, f, "can't")
			user("+@all")
			for done := 0; done < 150; {
				some, err := f.Results(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				done += len(some)
				f.Settled(some)
			}
			sinktest.WantOnceInOrder(t, b.read(t, topic), 150)
		})
	}
}

// Breaks it catches: an id that comes twice in one script, whose job is handed out twice. Seen to fail without a look
// at the ids of the same script.
func TestAnIDIsInAQueueOnce(t *testing.T) {
	b := newQueueBed(t)
	topic := b.topic(t)
	records := sinktest.Events(topic, 0, 10)
	sinktest.NewFlow(t, b.driver(t)).Send(append(records, sinktest.Events(topic, 5, 5)...))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 10)
}
