package config

import (
	"slices"
	"strings"
	"testing"
)

// Breaks it catches: a format that needs a registry and has none, or goes to a broker whose consumers lack that
// form; credentials that would be ignored; a key that does nothing. Seen to fail with each rule left out.
func TestARegistryIsConfiguredWhole(t *testing.T) {
	set := func(pairs ...string) (settings []Setting) {
		for i := 0; i < len(pairs); i += 2 {
			settings = append(settings, Setting{"--set", pairs[i], pairs[i+1]})
		}
		return settings
	}
	url := []string{"registry.url", "https://r:8081/apis/ccompat/v7"}
	for name, c := range map[string]struct {
		flags []string
		key   string // of the problem; "": none
	}{
		"avro":         {append([]string{"message.format", "avro"}, url...), ""},
		"protobuf":     {append([]string{"message.format", "protobuf"}, url...), ""},
		"json_schema":  {append([]string{"message.format", "json_schema"}, url...), ""},
		"no registry":  {[]string{"message.format", "avro"}, "registry.url"},
		"another sink": {append([]string{"message.format", "avro", "sink", "nats"}, url...), "message.format"},
		"two ways in": {[]string{"registry.username", "u", "registry.password_file", "p",
			"registry.token_file", "t"}, "registry.username"},
		"two tokens":              {[]string{"registry.token_command", "x", "registry.token_file", "t"}, "registry.username"},
		"no password":             {[]string{"registry.username", "u"}, "registry.username"},
		"half a certificate":      {append([]string{"registry.tls.cert_file", "c"}, url...), "registry.tls.cert_file"},
		"nothing to register":     {[]string{"registry.auto_register", "true"}, "registry.files"},
		"a subject with no end":   {[]string{"registry.subject", "{topic"}, "registry.subject"},
		"a version of no subject": {[]string{"registry.version", "0"}, "registry.version"},
	} {
		problems := problemsOf(t, Input{Flags: set(c.flags...)})
		if good := len(problems) == 0; good != (c.key == "") || !good && problems[0].Key != c.key {
			t.Errorf("%s: got %v, want a problem of %q", name, problems, c.key)
		}
	}
	shown := Config{Registry: Registry{URL: "https://u:hunter2@r:8081"}}.Redacted().Registry.URL
	if strings.Contains(shown, "hunter2") {
		t.Errorf("the password is shown: %s", shown)
	}
	r := Registry{Subject: "{topic}-com.{tenant}.{event_type}", Record: "com.{tenant}.X"}
	if got, want := r.SubjectColumns(), []string{"tenant", "event_type"}; !slices.Equal(got, want) {
		t.Errorf("columns: got %q, want %q", got, want)
	}
}
