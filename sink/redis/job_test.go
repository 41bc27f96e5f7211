package redis

import (
	"encoding/json"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks it catches: an id that a library refuses, or takes for a job of its own, or that is a key of the queue; two
// events with one id. Seen to fail with ids as they are.
func TestIDsAreFreeAndDiffer(t *testing.T) {
	seen := map[string]string{}
	for event, want := range map[string]string{
		"019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01": "019aa7e4-3c81-7d2b-9f0a-5b6c7d8e9f01",
		"order-17":                             "order-17",
		"17":                                   "id-17",
		"-17":                                  "id--17",
		"id-17":                                "id-id-17",
		"meta":                                 "id-meta",
		"wait":                                 "id-wait",
		"":                                     "position-9",
		"position-9":                           "id-position-9",
		"order:17":                             "order%3A17",
		"order%3A17":                           "order%253A17",
	} {
		got := jobID(event, 9)
		if got != want {
			t.Errorf("%q: got %q, want %q", event, got, want)
		}
		if other, there := seen[got]; there {
			t.Errorf("%q and %q: got %q for both", event, other, got)
		}
		seen[got] = event
	}
}

// Breaks it catches: options that are no JSON, or not what the libraries read. Seen to fail with an age in
// milliseconds.
func TestOptionsInTheLibrariesWords(t *testing.T) {
	for _, c := range []struct {
		options JobOptions
		want    string
	}{
		{JobOptions{}, `{`},
		{JobOptions{Attempts: 3, BackoffType: "fixed", BackoffDelay: 1500e6, RemoveOnComplete: JobKeep{Remove: true}},
			`{"attempts":3,"backoff":{"type":"fixed","delay":1500},"removeOnComplete":true,`},
		{JobOptions{RemoveOnComplete: JobKeep{Remove: true, Count: 10}, RemoveOnFail: JobKeep{Remove: true, Age: 3600e9}},
			`{"removeOnComplete":{"count":10},"removeOnFail":{"age":3600},`},
		{JobOptions{RemoveOnFail: JobKeep{Count: 10}}, `{`},
	} {
		got, err := c.options.opening()
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: got %s, %v; want %s", c.options, got, err, c.want)
		}
	}
}

// Breaks it catches: a part of the event that is missing, called otherwise, or there twice; data that is no JSON; a key
// called the aggregate's id when it is not. Seen to fail with the standard headers left among the headers, with a
// tombstone as the string "null", and with the key always called aggregate_id.
func TestTheDataOfAJobIsTheWholeEvent(t *testing.T) {
	event := JobEvent{ID: "id", EventType: "type", AggregateType: "aggregate_type", CreatedAt: "created_at"}
	whole := outbox.Headers{}
	for _, h := range [][2]string{{"id", "7"}, {"type", "placed"}, {"aggregate_type", "order"},
		{"created_at", "2026-11-24T10:00:00Z"}, {"traceparent", "00-a\"b"}, {"x-outbox-epoch", "3"}} {
		whole.Add(h[0], []byte(h[1]))
	}
	odd := outbox.Headers{}
	odd.Add("id", []byte("7"))
	odd.Add("raw", []byte{0xff})
	odd.Add("none", nil)
	const id, rest = `"id":"7",`, `,"headers":{"raw":{"base64":"/w=="},"none":null}}`
	for _, c := range []struct {
		name   string
		key    string
		record sink.Record
		want   string
	}{
		{"json", "aggregate_id", sink.Record{Key: []byte("42"), Value: []byte(`{"total": 99}`), Headers: whole},
			`{"id":"7","event_type":"placed","aggregate_type":"order","created_at":"2026-11-24T10:00:00Z","aggregate_id":"42",` +
				`"payload":{"total": 99},"headers":{"traceparent":"00-a\"b","x-outbox-epoch":"3"}}`},
		{"text", "aggregate_id", sink.Record{Key: []byte("ä"), Value: []byte("not json"), Headers: odd},
			`{` + id + `"aggregate_id":"ä","encoding":"text","payload":"not json"` + rest},
		{"bytes", "key", sink.Record{Key: []byte{0xff}, Value: []byte{0xff}, Headers: odd},
			`{` + id + `"key":{"base64":"/w=="},"encoding":"base64","payload":"/w=="` + rest},
		{"tombstone", "key", sink.Record{Headers: odd},
			`{` + id + `"key":null,"encoding":"tombstone","payload":null` + rest},
	} {
		e := event
		e.Key = c.key
		config := BullMQConfig{Event: &e}
		data, options := config.job([]byte(`{"attempts":3,`), "id-7", &c.record)
		if string(data) != c.want || !json.Valid(data) {
			t.Errorf("%s: got %s, want %s", c.name, data, c.want)
		}
		if want := `{"attempts":3,"jobId":"id-7"}`; string(options) != want {
			t.Errorf("%s: options: got %s, want %s", c.name, options, want)
		}
	}
}
