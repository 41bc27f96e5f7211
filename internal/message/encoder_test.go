package message

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: a template that reads another column, one that prefers a column of the table over the event's own
// field of that name, a NULL that becomes the text of one. Seen to fail with the event's own fields not looked for.
func TestTemplatesNameFieldsFirstAndThenColumns(t *testing.T) {
	renamed := func(c *config.Config) {
		c.Outbox.Columns = config.Columns{ID: "uid", AggregateType: "kind", AggregateID: "ref", EventType: "what",
			Payload: "body", CreatedAt: "at"}
	}
	for _, c := range []struct {
		name, topic, key  string
		change            func(*config.Config)
		extra             [][]byte
		wantTopic, wantTo string
	}{
		{name: "defaults", topic: "outbox.event.{aggregate_type}", key: "{aggregate_id}", wantTopic: "outbox.event.order",
			wantTo: "a1"},
		{name: "literal topic", topic: "all", key: "{aggregate_id}", wantTopic: "all", wantTo: "a1"},
		{name: "two columns", topic: "{aggregate_type}.{event_type}", key: "{aggregate_type}/{aggregate_id}",
			wantTopic: "order.made", wantTo: "order/a1"},
		{name: "literal behind", topic: "{aggregate_type}-v1", key: "k-{event_type}-k", wantTopic: "order-v1",
			wantTo: "k-made-k"},
		{name: "literal key", topic: "all", key: "same", wantTopic: "all", wantTo: "same"},
		{name: "by id and created_at", topic: "t.{id}", key: "{created_at}", wantTopic: "t.e1",
			wantTo: "2026-11-21 16:36:32.5+00"},
		{name: "logical name of a renamed column", topic: "t.{aggregate_type}", key: "{aggregate_id}", change: renamed,
			wantTopic: "t.order", wantTo: "a1"},
		{name: "logical names that no column has", topic: "t.{event_type}", key: "{id}", change: renamed, wantTopic: "t.made",
			wantTo: "e1"},
		{name: "actual name of a renamed column", topic: "t.{kind}", key: "{ref}", change: renamed, wantTopic: "t.order",
			wantTo: "a1"},
		{name: "further columns, in alphabetical order", topic: "t.{tenant}", key: "{region}/{tenant}",
			extra: [][]byte{text("eu"), text("acme")}, wantTopic: "t.acme", wantTo: "eu/acme"},
		{name: "NULL is empty in a longer key", topic: "all", key: "{region}/{aggregate_id}", extra: [][]byte{nil},
			wantTopic: "all", wantTo: "/a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRouted(t, func(conf *config.Config) {
				if c.change != nil {
					c.change(conf)
				}
				conf.Message.Topic, conf.Message.Key = c.topic, c.key
			})
			d := &carried{event: anEvent()}
			d.event.Extra = c.extra
			if len(r.columns.Extra) != len(c.extra) {
				t.Fatalf("further columns: got %q, want %d", r.columns.Extra, len(c.extra))
			}
			if reason := r.route(d); reason != nil {
				t.Fatalf("route: %v", reason)
			}
			if d.record.Topic != c.wantTopic || string(d.record.Key) != c.wantTo {
				t.Errorf("got topic %q key %q, want %q %q", d.record.Topic, d.record.Key, c.wantTopic, c.wantTo)
			}
			if !bytes.Equal(d.record.Value, d.event.Payload) {
				t.Errorf("record: got value %q, want the payload", d.record.Value)
			}
		})
	}
}

// A column that the configuration maps is not read twice, and one that no template names is not read at all. Break it
// catches: {kind} listed as a further column although it is the aggregate type.
func TestFurtherColumnsAreThoseThatTemplatesNameAndNobodyMaps(t *testing.T) {
	c := config.Default()
	c.Outbox.Columns.AggregateType = "kind"
	c.Message.Topic, c.Message.Key = "{kind}.{tenant}", "{aggregate_id}{tenant}{zone}"
	c.Message.Headers = map[string]string{"id": "x-id", "actor": "x-actor", "kind": "x-kind"}
	if got, want := Columns(c).Extra, []string{"actor", "tenant", "zone"}; !slices.Equal(got, want) {
		t.Errorf("further columns: got %q, want %q", got, want)
	}
}

// Break it catches: a key of nothing that becomes an empty key, which would hold all keyless events in one lane.
func TestKeyOfNothingIsNoKey(t *testing.T) {
	for _, template := range []string{"{aggregate_id}", "{aggregate_id}{event_type}", "a-{aggregate_id}-b"} {
		for _, empty := range [][]byte{nil, {}} {
			r := newRouted(t, func(c *config.Config) { c.Message.Key = template })
			d := &carried{event: anEvent()}
			d.event.AggregateID, d.event.EventType = empty, empty
			if reason := r.route(d); reason != nil || d.record.Key != nil {
				t.Errorf("%s of %#v: got key %q, reason %v; want no key", template, empty, d.record.Key, reason)
			}
		}
	}
}

// Breaks it catches: any rule of config.IllegalTopic left out; a refusal that is not cached as one. Seen to fail
// with . and .. allowed.
func TestEventsCannotChooseIllegalTopics(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		topic string
		legal bool
	}{
		{"order", true}, {"A.b_c-9", true}, {"_one", true}, {long[:249], true}, {"...", true},
		{"", false}, {long, false}, {".", false}, {"..", false}, {"__consumer_offsets", false}, {"__", false},
		{"with space", false}, {"slash/", false}, {"ümlaut", false}, {"nul\x00", false}, {"line\n", false}, {"{x}", false},
	} {
		r := newRouted(t, func(conf *config.Config) { conf.Message.Topic = "{aggregate_type}" })
		for range 2 { // the second comes from the cache
			d := &carried{event: anEvent()}
			d.event.AggregateType = text(c.topic)
			reason := r.route(d)
			switch {
			case c.legal && (reason != nil || d.record.Topic != c.topic):
				t.Errorf("topic %.30q: got %q, reason %v; want it taken", c.topic, d.record.Topic, reason)
			case !c.legal && (reason == nil || reason.Code != "INVALID_TOPIC" || reason.Class != outbox.Permanent):
				t.Errorf("topic %.30q: got reason %v, want INVALID_TOPIC, permanent", c.topic, reason)
			case !c.legal && len(reason.Text) > 1200:
				t.Errorf("topic %.30q: the reason has %d bytes", c.topic, len(reason.Text))
			}
		}
	}
}

// Event data must not grow the process: break it catches is a cache without a bound. Seen to fail with a cache that is
// never cleared.
func TestTopicCacheIsBounded(t *testing.T) {
	r := newRouted(t, nil)
	for i := range topicsCached + 5 {
		d := &carried{event: anEvent()}
		d.event.AggregateType = fmt.Append(nil, "t", i)
		if reason := r.route(d); reason != nil || d.record.Topic != fmt.Sprint("outbox.event.t", i) {
			t.Fatalf("event %d: got topic %q, reason %v", i, d.record.Topic, reason)
		}
	}
	if len(r.topics.rendered) > topicsCached {
		t.Errorf("cache: got %d topics, want at most %d", len(r.topics.rendered), topicsCached)
	}
}

// Breaks it catches: another order, a header for a NULL, a name that is not the configured one, an added column in the
// order of the map.
func TestHeadersComeInTheirOrderUnderTheirNames(t *testing.T) {
	standard := []string{"x-outbox-position=16/B374D848/4", "x-outbox-source=sys/1/7", "x-outbox-epoch=3"}
	r := newRouted(t, nil)
	d := &carried{event: anEvent()}
	d.event.Headers = text(`{"traceparent": "00-1", "b": "", "a": "\u00e9"}`)
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	want := slices.Concat([]string{"id=e1", "event_type=made", "aggregate_type=order",
		"created_at=2026-11-21T16:36:32.5Z", "traceparent=00-1", "b=", "a=é"}, standard)
	if diff := cmp.Diff(want, headerList(d.record.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}

	r = newRouted(t, func(c *config.Config) {
		c.Message.Headers = map[string]string{"id": "x-event-id", "zone": "b-zone", "actor": "a-actor",
			"aggregate_id": "c-ref", "empty": "d"}
	})
	d = &carried{event: anEvent()}
	d.event.EventType = nil
	d.event.Extra = [][]byte{text("bob"), nil, text("eu")} // actor, empty, zone
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	want = slices.Concat([]string{"x-event-id=e1", "aggregate_type=order", "created_at=2026-11-21T16:36:32.5Z",
		"a-actor=bob", "b-zone=eu", "c-ref=a1"}, standard)
	if diff := cmp.Diff(want, headerList(d.record.Headers)); diff != "" {
		t.Errorf("headers, renamed and added (-want +got):\n%s", diff)
	}
}

// Breaks it catches: a row that forges the relay's headers, a drop that is not counted, a name that is reserved though
// the relay does not use it any more. Seen to fail with the row's header counted and set all the same.
func TestRowsCannotSetTheRelaysOwnHeaders(t *testing.T) {
	r := newRouted(t, func(c *config.Config) {
		c.Message.Headers = map[string]string{"id": "x-event-id",
			"actor": "x-actor"}
	})
	d := &carried{event: anEvent()}
	d.event.Extra = [][]byte{text("bob")}
	d.event.Headers = text(`{"x-event-id": "forged", "event_type": "forged", "x-actor": "forged",
		"x-outbox-epoch": "9", "X-Outbox-New": "9", "id": "mine"}`)
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	want := []string{"x-event-id=e1", "event_type=made", "aggregate_type=order", "created_at=2026-11-21T16:36:32.5Z",
		"x-actor=bob", "id=mine",
		"x-outbox-position=16/B374D848/4", "x-outbox-source=sys/1/7", "x-outbox-epoch=3"}
	if diff := cmp.Diff(want, headerList(d.record.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if r.shadowed != 5 {
		t.Errorf("shadowed headers: got %d counted, want 5", r.shadowed)
	}
}

// Break it catches: an object of something else, or with something behind it, taken for headers. The text of a json
// column is always well-formed; that of a text column may be anything. Seen to fail with text behind the object let
// through.
func TestHeadersColumnMustBeAnObjectOfStrings(t *testing.T) {
	for _, c := range []struct {
		text string
		good bool
	}{
		{`{}`, true}, {` { "a" : "b" } `, true}, {`{"a":"b","a":"c"}`, true},
		{`[]`, false}, {`"a"`, false}, {`1`, false}, {`null`, false}, {``, false}, {`{"a": 1}`, false},
		{`{"a": null}`, false},
		{`{"a": {"b": "c"}}`, false}, {`{"a": ["b"]}`, false}, {`{"a": true}`, false},
		{`{"a": "b"`, false}, {`{"a": "b"} x`, false}, {`{"a": "b"}{}`, false}, {`{"a"}`, false}, {`{"a":"b",}`, false},
	} {
		r := newRouted(t, nil)
		d := &carried{event: anEvent()}
		d.event.Headers = text(c.text)
		reason := r.route(d)
		if c.good != (reason == nil) {
			t.Errorf("headers %s: got reason %v, want good = %v", c.text, reason, c.good)
		}
		if reason != nil && (reason.Code != "INVALID_HEADERS" || reason.Class != outbox.Permanent) {
			t.Errorf("headers %s: got %s %s, want INVALID_HEADERS, permanent", c.text, reason.Code, reason.Class)
		}
	}
}

// Breaks it catches: seconds of ':00' taken for a zone and cut off, a zone printed twice, a form that is no time of RFC
// 3339 under a name that promises one, in a message or in the copy of a dead letter; a dead letter because of it. Seen
// to fail with the column's own text in the header.
func TestCreatedAtIsRFC3339(t *testing.T) {
	for stamp, want := range map[string]string{
		"2026-11-21 16:36:32.123456+00":        "2026-11-21T16:36:32.123456Z",
		"2026-11-21 16:36:32+00":               "2026-11-21T16:36:32Z",
		"2026-11-21 16:36:32.5+00:00":          "2026-11-21T16:36:32.5Z",
		"2026-11-21 16:36:32":                  "2026-11-21T16:36:32Z",
		"2026-11-21 16:36:00":                  "2026-11-21T16:36:00Z",
		"2026-11-21 16:00:00":                  "2026-11-21T16:00:00Z",
		"2026-11-21 00:00:00+00":               "2026-11-21T00:00:00Z",
		"infinity":                             "",
		"-infinity":                            "",
		"0044-03-15 12:00:00+00 BC":            "",
		"12026-11-21 16:36:32+00":              "",
		"2026-11-21 16:36:32+02":               "",
		"yesterday " + strings.Repeat("x", 90): "",
	} {
		_, err := outbox.ParseTimestamp(text(stamp))
		got, ok := rfc3339(nil, text(stamp), err == nil)
		if string(got) != want || ok != (want != "") {
			t.Errorf("created_at %q: got %q, %t; want %q", stamp, got, ok, want)
		}
		r, d := newRouted(t, func(c *config.Config) { c.DLQ.Topic = "dead" }), &carried{event: anEvent()}
		d.event.CreatedAt = text(stamp)
		if reason := r.route(d); reason != nil {
			t.Fatal(reason)
		}
		if h, has := d.record.Headers.Get("created_at"); string(h) != want || has != ok {
			t.Errorf("header created_at of %q: got %q, %t; want %q, %t", stamp, h, has, want, ok)
		}
		var copied sink.Record
		if reason := r.Copy(Dead{Event: &d.event, Record: &d.record, Reason: &sink.Reason{}}, &copied); reason != nil {
			t.Fatal(reason)
		}
		if h, has := copied.Headers.Get("created_at"); string(h) != want || has != ok {
			t.Errorf("header created_at of a copy of %q: got %q, %t; want %q, %t", stamp, h, has, want, ok)
		}
	}
}

// Breaks it catches: created_at ignored, or a value that has no time used as one. Seen to fail with seconds for
// milliseconds.
func TestTimestampIsThatOfPublishingOrOfCreation(t *testing.T) {
	for _, c := range []struct {
		timestamp string
		created   []byte
		want      int64 // 0: refused
	}{
		{config.TimestampPublish, text("2026-11-21 16:36:32.5+00"), 1_700_000_000_123},
		{config.TimestampPublish, text("infinity"), 1_700_000_000_123},
		{config.TimestampCreatedAt, text("2026-11-21 16:36:32.5+00"),
			time.Date(2026, 11, 21, 16, 36, 32, 500e6, time.UTC).UnixMilli()},
		{config.TimestampCreatedAt, nil, 1_700_000_000_123},
		{config.TimestampCreatedAt, text("infinity"), 0},
	} {
		r := newRouted(t, func(conf *config.Config) { conf.Message.Timestamp = c.timestamp })
		d := &carried{event: anEvent()}
		d.event.CreatedAt = c.created
		reason := r.route(d)
		if c.want == 0 {
			if reason == nil || reason.Code != "INVALID_CREATED_AT" {
				t.Errorf("%s of %q: got reason %v, want INVALID_CREATED_AT", c.timestamp, c.created, reason)
			}
			continue
		}
		if reason != nil || d.record.Timestamp != c.want {
			t.Errorf("%s of %q: got %d, reason %v; want %d", c.timestamp, c.created, d.record.Timestamp, reason, c.want)
		}
	}
}

// Breaks it catches: a limit that is off by one, or that forgets key or headers; a cost below what the broker's driver
// will count. Seen to fail with the value alone counted.
func TestLargerEventsThanAllowedAreDeadBeforeTheyAreSent(t *testing.T) {
	d := &carried{event: anEvent()}
	r := newRouted(t, nil)
	if reason := r.route(d); reason != nil {
		t.Fatal(reason)
	}
	size := len(d.record.Key) + len(d.record.Value) + len(d.record.Headers.Block())
	if d.record.Cost < size {
		t.Errorf("cost: got %d, want at least the record's %d bytes", d.record.Cost, size)
	}
	for _, limit := range []int{size, size - 1} {
		r := newRouted(t, func(c *config.Config) { c.Limits.MaxEventBytes = config.ByteSize(limit) })
		reason := r.route(&carried{event: anEvent()})
		if limit == size && reason != nil {
			t.Errorf("an event of exactly the limit: got %v", reason)
		}
		if limit < size && (reason == nil || reason.Code != "MESSAGE_TOO_LARGE" ||
			!strings.Contains(reason.Text, fmt.Sprint(size)) || !strings.Contains(reason.Text, fmt.Sprint(limit))) {
			t.Errorf("an event of a byte too many: got %v, want MESSAGE_TOO_LARGE with %d and %d", reason, size, limit)
		}
	}
}

// Many events share a buffer for keys and headers. Breaks it catches: a key or header block that the next event, or one
// that was refused, writes over; a block that outgrows the buffer's rest. Seen to fail with headers of another form
// taken for none.
func TestLaterEventsNeverOverwriteEarlierOnes(t *testing.T) {
	r := newRouted(t, func(c *config.Config) { c.Message.Key = "{aggregate_type}/{aggregate_id}" })
	const n = 3000
	deliveries := make([]carried, n)
	wantKey, want := make([]string, n), make([][]string, n)
	for i := range deliveries {
		d := &deliveries[i]
		d.event = anEvent()
		d.event.ID = fmt.Appendf(nil, "id-%d", i)
		d.event.AggregateID = fmt.Appendf(nil, "ref-%d-%s", i, strings.Repeat("k", i%700))
		d.event.Headers = fmt.Appendf(nil, `{"n": "%d", "filler": %q}`, i, strings.Repeat("f", i%1500))
		if i%7 == 3 {
			d.event.Headers = fmt.Appendf(nil, `{"n": "%s", "bad": 1}`, strings.Repeat("b", 400))
		}
		if reason := r.route(d); (reason != nil) != (i%7 == 3) {
			t.Fatalf("event %d: %v", i, reason)
		}
		wantKey[i], want[i] = string(d.record.Key), headerList(d.record.Headers)
		if wantKey[i] != "order/"+string(d.event.AggregateID) {
			t.Fatalf("event %d: got key %.40q", i, wantKey[i])
		}
	}
	for i := range deliveries {
		if got := string(deliveries[i].record.Key); got != wantKey[i] {
			t.Fatalf("key of event %d: was %.40q, is %.40q", i, wantKey[i], got)
		}
		if diff := cmp.Diff(want[i], headerList(deliveries[i].record.Headers)); diff != "" {
			t.Fatalf("headers of event %d changed:\n%s", i, diff)
		}
	}
}

// Break it catches: anything on the path of every event that allocates, such as a topic or key rendered again. The
// buffer for keys and headers is one allocation for more than a hundred events. Seen to fail with a key rendered again.
func TestRoutingDoesNotAllocate(t *testing.T) {
	for _, topic := range []string{"outbox.event.{aggregate_type}", "{aggregate_type}.{event_type}", "all"} {
		r := newRouted(t, func(c *config.Config) {
			c.Message.Topic, c.Message.Key = topic,
				"{aggregate_type}-{aggregate_id}"
		})
		d := &carried{event: anEvent()}
		const events = 1000
		per := testing.AllocsPerRun(5, func() {
			for range events {
				if reason := r.route(d); reason != nil {
					t.Fatal(reason)
				}
			}
		}) / events
		if per > 0.02 {
			t.Errorf("topic %s: got %.3f allocations per event, want at most 0.02", topic, per)
		}
	}
}
