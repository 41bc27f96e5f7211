package bullmq

import "testing"

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
		got := idOf(event, 9)
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
		options Options
		want    string
	}{
		{Options{}, `{`},
		{Options{Attempts: 3, BackoffType: "fixed", BackoffDelay: 1500e6, RemoveOnComplete: Keep{Remove: true}},
			`{"attempts":3,"backoff":{"type":"fixed","delay":1500},"removeOnComplete":true,`},
		{Options{RemoveOnComplete: Keep{Remove: true, Count: 10}, RemoveOnFail: Keep{Remove: true, Age: 3600e9}},
			`{"removeOnComplete":{"count":10},"removeOnFail":{"age":3600},`},
		{Options{RemoveOnFail: Keep{Count: 10}}, `{`},
	} {
		got, err := c.options.opening()
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: got %s, %v; want %s", c.options, got, err, c.want)
		}
	}
}
