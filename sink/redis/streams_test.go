package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/redis"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// streamBed is a server with a proxy before it.
type streamBed struct {
	server *harness.RedisServer
	proxy  *cutproxy.Plain
	client goredis.UniversalClient // past the proxy
	count  int
}

func newStreamBed(t *testing.T, settings ...string) *streamBed {
	t.Helper()
	b := &streamBed{server: harness.Redis(t, settings...)}
	b.proxy = cutproxy.StartPlain(t, b.server.Addr)
	b.client = goredis.NewClient(&goredis.Options{Addr: b.server.Addr, Protocol: 2})
	t.Cleanup(func() { _ = b.client.Close() })
	return b
}

func (b *streamBed) topic(*testing.T) string {
	b.count++
	return fmt.Sprintf("events:topic-%d", b.count)
}

func (b *streamBed) driver(t *testing.T) *redis.Streams {
	t.Helper()
	d, err := redis.NewStreams(redis.StreamsConfig{URL: "redis://" + b.proxy.Addr, RequestTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // of a test that is skipped
	return d
}

// read returns the stream's entries, by the rules of the package's documentation.
func (b *streamBed) read(t *testing.T, topic string) (found []sinktest.Message) {
	t.Helper()
	answer, err := b.client.Do(t.Context(), "XRANGE", topic, "-", "+").Slice()
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range answer {
		pair := item.([]any)
		m := sinktest.Message{Topic: topic}
		var ms, seq int64
		if _, err := fmt.Sscanf(pair[0].(string), "%d-%d", &ms, &seq); err != nil {
			t.Fatal(err)
		}
		m.Offset = ms<<22 | seq
		fields := pair[1].([]any)
		for i := 0; i < len(fields); i += 2 {
			name, value := fields[i].(string), []byte(fields[i+1].(string))
			switch name {
			case "key":
				m.Key = value
			case "payload":
				m.Value = value
			case "x-outbox-tombstone":
			default:
				m.Headers.Add(strings.TrimPrefix(name, "header:"), value)
			}
		}
		found = append(found, m)
	}
	return found
}

// spoil puts a value of another type in the stream's place, and the stream back.
func (b *streamBed) spoil(t *testing.T, topic string) func() {
	must := func(arguments ...any) {
		if err := b.client.Do(t.Context(), arguments...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	must("RENAME", topic, "kept:"+topic)
	must("SET", topic, "a string")
	return func() { must("RENAME", "kept:"+topic, topic) }
}

// TestConformance runs the suite of all drivers on a real server behind a proxy that cuts. Breaks it catches: see
// there. Seen to fail with the key's field left out, and without reading back.
func TestConformance(t *testing.T) {
	b := newStreamBed(t)
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		return sinktest.Fixture{
			Driver:       b.driver(t),
			Topic:        func(t *testing.T, _ int) string { return b.topic(t) },
			Read:         b.read,
			Deduplicates: true,
			Lacks:        sinktest.Lacks{Timestamps: true, NullHeaders: true},
			LoseAnswers:  b.proxy.LoseAnswers,
			Outage:       b.proxy.Outage,
			Ruins:        map[string]func(*testing.T, string) func(){"WrongType": b.spoil},
		}
	})
}

// Connections break before, in and after requests, while others write to the stream, and the server is killed. Breaks
// it catches: an event lost, doubled or out of order by an unknown outcome. Seen to fail without reading back.
func TestCutsLoseDoubleAndReorderNothing(t *testing.T) {
	harness.Full(t)
	b := newStreamBed(t, "--appendfsync", "always")
	topic := b.topic(t)
	f := sinktest.NewFlow(t, b.driver(t))
	const n = 40_000
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
		add := goredis.XAddArgs{Stream: topic, Values: []string{"payload", "foreign"}}
		if err := b.client.XAdd(t.Context(), &add).Err(); err != nil {
			t.Errorf("add as another writer: %v", err)
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
// between the look and the first append; the frozen relay's events in between. Seen to fail with Tail that does not
// start the log.
func TestSuccessorAndFrozenRelayMakeNoDuplicates(t *testing.T) {
	harness.Full(t)
	b := newStreamBed(t)
	topic := b.topic(t)
	frozen := sinktest.NewFlow(t, b.driver(t))
	first := sinktest.Events(topic, 0, 2500)
	frozen.Send(first)
	heir := b.driver(t)
	var read []string
	query := sink.TailQuery{Topic: topic, From: map[int32]int64{0: first[99].Offset + 1},
		Headers: [sink.TailHeaders]string{"id", "x-none", ""}}
	err := heir.Tail(t.Context(), query, func(r sink.TailRecord) error {
		want := first[100+len(read)]
		if string(r.Headers[0]) != fmt.Sprint(100+len(read)) || r.Headers[1] != nil || r.Offset != want.Offset {
			t.Errorf("record %d: got id %s at %d, want it at %d", 100+len(read), r.Headers[0], r.Offset, want.Offset)
		}
		read = append(read, string(r.Headers[0]))
		return nil
	})
	if err != nil || len(read) != 2400 {
		t.Fatalf("tail: got %d records, %v; want 2400", len(read), err)
	}
	frozen.Send(sinktest.Events(topic, 2500, 300)) // it wakes up before the heir has sent anything
	second := sinktest.NewFlow(t, heir)
	second.Send(sinktest.Events(topic, 2500, 1000))
	frozen.Send(sinktest.Events(topic, 2800, 200)) // and once more
	second.Send(sinktest.Events(topic, 3500, 10))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 3510)
}

// Breaks it catches: a stream that was emptied and filled again taken for one that never had an end; entries that go on
// with a time that was. Seen to fail with the end taken from the last entry.
func TestTrimmedStreamKeepsItsEnd(t *testing.T) {
	b := newStreamBed(t)
	topic := b.topic(t)
	f := sinktest.NewFlow(t, b.driver(t))
	before := sinktest.Events(topic, 0, 10)
	f.Send(before)
	if err := b.client.XTrimMaxLen(t.Context(), topic, 0).Err(); err != nil {
		t.Fatal(err)
	}
	other := sinktest.NewFlow(t, b.driver(t)) // asks for the end
	after := sinktest.Events(topic, 0, 10)
	other.Send(after)
	f.Send(sinktest.Events(topic, 10, 10))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 20)
	if after[0].Offset <= before[9].Offset {
		t.Errorf("offset behind the trimmed entries: got %d, want more than %d", after[0].Offset, before[9].Offset)
	}
}

// Breaks it catches: a lost stream that no one is told of. Seen to fail with the alarm not kept.
func TestLostStreamRaisesAnAlarm(t *testing.T) {
	b := newStreamBed(t)
	topic := b.topic(t)
	d := b.driver(t)
	f := sinktest.NewFlow(t, d)
	f.Send(sinktest.Events(topic, 0, 10))
	if err := b.client.Del(t.Context(), topic).Err(); err != nil {
		t.Fatal(err)
	}
	f.Send(sinktest.Events(topic, 0, 5))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 5)
	if a := d.Alarms(); len(a) != 1 || a[0].Kind != sink.AlarmOffsetsWentBack || a[0].Topic != topic {
		t.Errorf("alarms: got %+v, want one of the stream", a)
	}
}

// Breaks it catches: an error of the wrong kind. Seen to fail with every error the cluster's.
func TestTroubleIsBlamedOnWhoeverHasIt(t *testing.T) {
	b := newStreamBed(t)
	if err := b.client.Set(t.Context(), "no-stream", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	f := sinktest.NewFlow(t, b.driver(t))
	if _, err := f.Submit(t.Context(), sinktest.Events("no-stream", 0, 1)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, "the topic is in trouble", func(context.Context) string {
		for _, r := range f.Troubles() {
			if r.Kind == sink.TopicTrouble && strings.Contains(r.Reason, "WRONGTYPE") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", f.Troubles())
	})
	locked := harness.Redis(t, "--requirepass", "right")
	d, err := redis.NewStreams(redis.StreamsConfig{URL: "redis://:wrong@" + locked.Addr})
	if err != nil {
		t.Fatal(err)
	}
	g := sinktest.NewFlow(t, d)
	if _, err := g.Submit(t.Context(), sinktest.Events("any", 0, 1)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, "the engine is blocked", func(context.Context) string {
		if s := g.Status(); s.State != sink.Blocked {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// Break it catches: an event with more headers than a script can append, which stops its stream as if Redis were away.
// Seen to fail without a look at their number.
func TestAnEventWithTooManyHeadersIsRefusedAlone(t *testing.T) {
	b := newStreamBed(t)
	topic := b.topic(t)
	f := sinktest.NewFlow(t, b.driver(t))
	records := sinktest.Events(topic, 0, 30)
	for _, n := range []int{0, 14, 15} {
		for i := range 4500 {
			records[n].Headers.Add(fmt.Sprintf("h%d", i), []byte("v"))
		}
	}
	if _, err := f.Submit(t.Context(), records); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	refused := map[*sink.Record]bool{}
	for done := 0; done < len(records); {
		some, err := f.Results(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range some {
			if r.Result == sink.Rejected && r.Reason.Code == "TOO_MANY_HEADERS" {
				refused[r] = true
			}
		}
		done += len(some)
		f.Settled(some)
	}
	for n, r := range records {
		if want := n == 0 || n == 14 || n == 15; refused[r] != want {
			t.Errorf("event %d: refused %t, want %t", n, refused[r], want)
		}
	}
}

// A start after a crash reads streams back, and one is not a stream any more. Breaks it catches: its answer taken for
// a server that is away, for which the start waits without an end; losses that no one is told of. Written, but not run,
// to fail with every error that names the key taken for no answer, and with nothing told of deleted entries.
func TestTailOfAKeyThatIsNoStreamIsAnAnswer(t *testing.T) {
	b := newStreamBed(t)
	topic := b.topic(t)
	d := b.driver(t)
	events := sinktest.Events(topic, 0, 10)
	sinktest.NewFlow(t, d).Send(events)
	for _, n := range []int{2, 7, 8} {
		left := b.client.XRange(t.Context(), topic, "-", "+").Val()
		if err := b.client.XDel(t.Context(), topic, left[n-2].ID).Err(); err != nil {
			t.Fatal(err)
		}
	}
	lost, keys := int64(0), 0
	query := sink.TailQuery{Topic: topic, From: map[int32]int64{0: events[5].Offset}, Gone: func(n int64) { lost += n }}
	err := d.Tail(t.Context(), query, func(r sink.TailRecord) error {
		if strings.HasPrefix(string(r.Key), "key-") {
			keys++
		}
		return nil
	})
	if err != nil || lost != 3 || keys < 3 {
		t.Errorf("deleted entries: got %d lost, %d keys, %v; want 3 and 3 or more", lost, keys, err)
	}
	other := b.topic(t)
	if err := b.client.Set(t.Context(), other, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	err = d.Tail(t.Context(), sink.TailQuery{Topic: other}, func(sink.TailRecord) error { return nil })
	if err == nil || errors.Is(err, sink.ErrUnreachable) || errors.Is(err, sink.ErrPassing) {
		t.Errorf("a key that is no stream: got %v, want an answer that will not change by itself", err)
	}
}
