package sinktest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// numberHeader tells odd records apart, whatever became of their keys and values.
const numberHeader = "number"

// oddTexts have a meaning for some protocol, client or server, or are cut, folded or escaped.
var oddTexts = []string{
	"", " ", "\t", " lead", "trail ", "in side", "\n", "a\nb", "a\r\nInjected: 1", "\x00", "a\x00b", "a\x01b", "\x1b[31m",
	"\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "\u202e",
	"é", "e\u0301", "日本", "🙂", "\xff", "a\xc3", "null", "{}",
	"[1]",
	`"`, `a"b`, "'", "`", `\`, `a\b`, "%", "%00", "%25", "$1", "$JS.API", ">", "*", "a.*", "..", "../x", "/", "a,b",
	"a;b",
	"a:b", "a=b", "(a)", "#", "?x=1&y", "<a>", "true", "0", "-1", "1e999", "=?utf-8?q?a?=", "base64:YQ==",
	`{"base64":"YQ=="}`,
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("é", 128), strings.Repeat("a ", 4000) + "a",
	strings.Repeat("y", 70_000),
}

// oddNames are names of headers that mean something to a broker, a client or a proxy, and in other capitals.
var oddNames = []string{
	"ID", "Id", "key", "Key", "payload", "value", "header:key", "header:payload", "header:header:key", "headers",
	"opts",
	"__proto__", "constructor", "length", "data", "Status", "Description", "Reply-To", "Nats-Msg-Id",
	"NATS-Expected-Stream",
	"Nats-Batch-Id", "CC", "BCC", "cc", "x-death", "X-Death", "x-delay", "x-match", "x-invalid-headers",
	"x-shovelled",
	"x-stream-offset", "x-stream-filter-value", "x-opt-a", "x-correlation-id", "x-event-id", "message-id",
	"correlation-id",
	"delivery-mode", "expiration", "priority", "content-type", "Content_Type", "content-md5", "content-language",
	"ce-type",
	"ce_type", "traceparent", "Trace_Parent", "x_tenant", "a b", "a:b", "a\tb",
}

// odd submits records that are odd in a header's name, a header's value, the id, the key or the value, each beside a
// plain one. An odd record is refused permanently with a reason, or it is in the topic as it was submitted.
//
// Catches: a name, value, id or key that is cut, folded, escaped or taken for something of the broker's; an odd record
// that takes a plain one with it or that is sent forever.
func odd(t *testing.T, f Fixture) {
	topic := f.Topic(t, 1)
	records := oddRecords(topic)
	b := newBench(t, f, sink.Config{})
	for _, r := range records {
		b.submit(r)
	}
	b.collect(len(records))
	found := map[string]Message{}
	for _, m := range f.Read(t, topic) {
		number, _ := m.Headers.Get(numberHeader)
		if _, twice := found[string(number)]; twice && f.Deduplicates {
			t.Errorf("record %s is there twice", number)
		}
		found[string(number)] = m
	}
	refused := map[string]int{}
	for i, r := range records {
		m, there := found[fmt.Sprint(i)]
		what := fmt.Sprintf("record %d, key %.30q, value %.30q, headers %.100q", i, r.Key, r.Value,
			Lacks{}.headers(r.Headers))
		switch {
		case r.Result == sink.Rejected:
			if r.Reason.Class != outbox.Permanent || r.Reason.Code == "" || r.Reason.Text == "" || i%2 == 0 {
				t.Errorf("%s: got rejected for %+v", what, r.Reason)
			}
			if there {
				t.Errorf("%s: got rejected for %s, and in the topic", what, r.Reason.Code)
			}
			refused[r.Reason.Code]++
		case r.Result != sink.Published || !there:
			t.Errorf("%s: got result %d, reason %v, in the topic: %t", what, r.Result, r.Reason, there)
		default:
			if !same(m.Key, r.Key) || !same(m.Value, r.Value) {
				t.Errorf("%s: got key %.100q, value %.100q", what, m.Key, m.Value)
			}
			if got, want := f.Lacks.headers(m.Headers), f.Lacks.headers(f.seen(r.Headers)); !slices.Equal(got, want) {
				t.Errorf("%s: got headers %.300q, want %.300q", what, got, want)
			}
		}
	}
	t.Logf("%d records, refused: %v", len(records), refused)
}

// oddRecords are plain records in even places and odd ones in the others, each with a key of its own.
func oddRecords(topic string) (all []*sink.Record) {
	add := func(change func(*sink.Record), extra ...string) {
		n := len(all)
		r := record(topic, fmt.Sprintf("odd-%d", n), fmt.Sprintf("value-%d", n))
		r.Headers.Add(numberHeader, fmt.Append(nil, n))
		for i := 0; i < len(extra); i += 2 {
			r.Headers.Add(extra[i], []byte(extra[i+1]))
		}
		change(r)
		all = append(all, r)
	}
	plain := func(*sink.Record) {}
	both := func(change func(*sink.Record), extra ...string) {
		add(plain, "id", fmt.Sprintf("plain-%d", len(all)))
		add(change, extra...)
	}
	for _, text := range oddTexts {
		both(func(r *sink.Record) { r.Key = append([]byte(text), fmt.Sprint(cmp.Or(len(text), 1))...) },
			"id", "odd key "+fmt.Sprint(len(all)))
		both(func(r *sink.Record) { r.Value = []byte(text) }, "id", "odd value "+fmt.Sprint(len(all)))
		both(plain, "id", text)
		both(plain, "id", "odd header "+fmt.Sprint(len(all)), "a", text)
		if utf8.ValidString(text) { // as a row's headers are
			both(plain, "id", "odd name "+fmt.Sprint(len(all)), text, "1")
		}
	}
	names := slices.Clone(oddNames)
	for c := '!'; c <= '~'; c++ {
		names = append(names, "a"+string(c)+"b")
	}
	for _, name := range names {
		both(plain, "id", "name "+fmt.Sprint(len(all)), name, "1")
		both(func(r *sink.Record) { r.Value = nil }, "id", "tombstone "+fmt.Sprint(len(all)), name, "100")
	}
	var many []string
	for i := range 10_000 {
		many = append(many, fmt.Sprint("h", i), "v")
	}
	both(plain, append(many, "id", "many")...)
	both(plain, append(many[:6_000:6_000], "id", "some")...)
	both(func(r *sink.Record) { r.Key = nil; r.Value = bytes.Repeat([]byte{0}, 1<<19) }, "id", "large")
	return all
}

// seen are the headers as readers see them.
func (f Fixture) seen(h outbox.Headers) (out outbox.Headers) {
	for name, value := range h.All() {
		carried := true
		if f.Name != nil {
			name, carried = f.Name(name)
		}
		if carried {
			out.Add(name, value)
		}
	}
	return out
}
