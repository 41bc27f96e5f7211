package config

import (
	"strings"
	"testing"
)

// Break it catches: a name in a CloudEvent that is accepted and then not used, or used twice.
func TestCloudEventsHeadersHaveFixedNames(t *testing.T) {
	for headers, want := range map[string]bool{
		"":                      true,
		"tenant=x-tenant":       true,
		"tenant=ce_tenant":      true,
		"aggregate_id=ref":      true,
		"id=x-event-id":         false,
		"event_type=ce_type":    false,
		"created_at=at":         false,
		"tenant=ce_id":          false,
		"tenant=Content-Type":   false,
		"a=b,tenant=ce_SUBJECT": false,
	} {
		for _, format := range []string{FormatPlain, FormatEnvelope, FormatCloudEvents} {
			problems := problemsOf(t, Input{Flags: []Setting{{"--set", "message.format", format},
				{"--set", "message.headers", headers}}})
			switch allowed := want || format != FormatCloudEvents; {
			case allowed && len(problems) > 0:
				t.Errorf("%s with %q: got %v, want it allowed", format, headers, problems)
			case !allowed &&
				(len(problems) != 1 || problems[0].Key != "message.headers" ||
					!strings.Contains(problems[0].Allowed, "ce_specversion")):
				t.Errorf("%s with %q: got %v, want message.headers refused with the names that are taken", format,
					headers, problems)
			}
		}
	}
}

// Breaks it catches: a rename that one of relay and verify does not know, a CloudEvent's id looked for in the wrong
// header.
func TestHeaderNames(t *testing.T) {
	renamed := map[string]string{"created_at": "at", "tenant": "x"}
	for _, c := range []struct {
		format string
		want   [4]string
	}{
		{FormatPlain, [4]string{"id", "event_type", "aggregate_type", "at"}},
		{FormatEnvelope, [4]string{"id", "event_type", "aggregate_type", "at"}},
		{FormatCloudEvents, [4]string{"ce_id", "ce_type", "ce_aggregatetype", "ce_time"}},
	} {
		if got := (Message{Format: c.format, Headers: renamed}).HeaderNames(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.format, got, c.want)
		}
	}
}
