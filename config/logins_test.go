package config

import (
	"strings"
	"testing"
)

// Breaks it catches: a half-written login that connects otherwise than meant, such as in plain text with a certificate
// that is named and not used.
func TestLoginsAreWholeOrNone(t *testing.T) {
	for _, c := range []struct {
		settings string // key=value with spaces
		problem  string // empty: allowed
	}{
		{"", ""},
		{"kafka.tls.enabled=true", ""},
		{"kafka.tls.enabled=true kafka.tls.cert_file=c kafka.tls.key_file=k kafka.tls.ca_file=a kafka.tls.server_name=s", ""},
		{"kafka.tls.ca_file=a", "kafka.tls.enabled"},
		{"kafka.tls.cert_file=c kafka.tls.key_file=k", "kafka.tls.enabled"},
		{"kafka.tls.server_name=s", "kafka.tls.enabled"},
		{"kafka.tls.enabled=true kafka.tls.cert_file=c", "kafka.tls.cert_file"},
		{"kafka.tls.enabled=true kafka.tls.key_file=k", "kafka.tls.cert_file"},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.username=u kafka.sasl.password_file=p", ""},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.username=u kafka.sasl.password_command=p,--of,u", ""},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.username=u kafka.sasl.password_command=p kafka.sasl.password_file=p",
			"kafka.sasl.mechanism"},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.password_command=p", "kafka.sasl.mechanism"},
		{"postgres.password_command=aws,rds,generate-db-auth-token", ""},
		{"postgres.password_command=p postgres.password_file=p", "postgres.password_file"},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.username=u", "kafka.sasl.mechanism"},
		{"kafka.sasl.mechanism=PLAIN kafka.sasl.password_file=p", "kafka.sasl.mechanism"},
		{"kafka.sasl.username=u kafka.sasl.password_file=p", "kafka.sasl.mechanism"},
	} {
		var in Input
		for _, s := range strings.Fields(c.settings) {
			key, value, _ := strings.Cut(s, "=")
			in.Flags = append(in.Flags, Setting{"--set", key, value})
		}
		problems := problemsOf(t, in)
		if c.problem == "" && len(problems) > 0 {
			t.Errorf("%s: got %v, want it allowed", c.settings, problems)
		}
		if c.problem != "" && (len(problems) != 1 || problems[0].Key != c.problem) {
			t.Errorf("%s: got %v, want one problem of %s", c.settings, problems, c.problem)
		}
	}
}
