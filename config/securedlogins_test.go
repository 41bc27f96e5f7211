package config

import (
	"slices"
	"strings"
	"testing"
)

// Breaks it catches: certificates that are named and not used, half a pair of them, a login of two kinds, and a problem
// that hides another. Seen to fail with any URL taken for one with TLS, and with a user without a password allowed.
func TestCertificatesAndLoginsAreWholeOrNone(t *testing.T) {
	for settings, keys := range map[string]string{ // key=value with spaces; the problems' keys, in order
		"nats.tls.ca_file=a": "", // TLS whatever the URL says
		"nats.tls.ca_file=a nats.tls.key_file=k nats.url=tls://h":                         "nats.tls.cert_file",
		"nats.credentials_file=c":                                                         "",
		"nats.nkey_file=n":                                                                "",
		"nats.username=u nats.password_file=p":                                            "",
		"nats.username=u":                                                                 "nats.credentials_file",
		"nats.password_file=p":                                                            "nats.credentials_file",
		"nats.nkey_file=n nats.token_file=t":                                              "nats.credentials_file",
		"redis.tls.ca_file=a redis.url=rediss://h":                                        "",
		"redis.tls.ca_file=a redis.url=redis://h":                                         "redis.url",
		"redis.tls.cert_file=c redis.url=rediss://h":                                      "redis.tls.cert_file",
		"redis.tls.cert_file=c redis.tls.ca_file=a redis.url=redis://h":                   "redis.url redis.tls.cert_file",
		"rabbitmq.tls.ca_file=a rabbitmq.url=amqps://h":                                   "",
		"rabbitmq.tls.ca_file=a rabbitmq.url=amqp://h":                                    "rabbitmq.url",
		"rabbitmq.tls.ca_file=a rabbitmq.stream_url=rabbitmq-stream+tls://h":              "rabbitmq.url",
		"rabbitmq.tls.key_file=k rabbitmq.url=amqps://h":                                  "rabbitmq.tls.cert_file",
		"rabbitmq_stream.tls.ca_file=a":                                                   "rabbitmq.stream_url",
		"rabbitmq_stream.tls.ca_file=a rabbitmq.stream_url=rabbitmq-stream+tls://h":       "",
		"webhook.tls.ca_file=a webhook.url=http://h":                                      "webhook.url",
		"webhook.tls.ca_file=a webhook.url=http://h webhook.endpoints=orders=https://h/o": "",
		"registry.tls.ca_file=a registry.url=http://h":                                    "registry.url",
	} {
		var in Input
		for _, s := range strings.Fields(settings) {
			key, value, _ := strings.Cut(s, "=")
			in.Flags = append(in.Flags, Setting{"--set", key, value})
		}
		var got []string
		for _, p := range problemsOf(t, in) {
			got = append(got, p.Key)
		}
		if want := strings.Fields(keys); !slices.Equal(got, want) {
			t.Errorf("%s: got problems of %q, want of %q", settings, got, want)
		}
	}
}
