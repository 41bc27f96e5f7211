package config

import (
	"strings"
	"testing"
)

// Breaks it catches: a secret among the keys that people see (seen to fail without Redacted), a key missing, a key that
// was set shown as a default.
func TestShownKeysHaveNoSecrets(t *testing.T) {
	c := Default()
	c.Postgres.URL = "postgres://relay:hunter2@db/shop?sslpassword=hunter3"
	c.NATS.URL, c.Redis.URL = "nats://relay:hunter2@a:1,nats://relay:hunter3@b:1", "redis://:hunter2@h:1/0"
	c.Webhook.URL, c.Webhook.Secret = "https://relay:hunter2@h/a?token=hunter3", "whsec_hunter2"
	c.Webhook.Endpoints = map[string]string{"a": "https://relay:hunter2@h/a?token=hunter3", "b": "https://h?hunter2"}
	c.Kafka.Brokers = []string{"a:1", "b:2"}
	shown := c.Shown()
	if len(shown) != len(availableKeys()) {
		t.Errorf("keys: got %d, want %d", len(shown), len(availableKeys()))
	}
	for _, s := range shown {
		if strings.Contains(s.Value, "hunter") {
			t.Errorf("%s shows a secret: %s", s.Key, s.Value)
		}
		switch s.Key {
		case "kafka.brokers":
			if s.Value != "[a:1, b:2]" || s.IsDefault {
				t.Errorf("kafka.brokers: got %+v", s)
			}
		case "postgres.slot":
			if s.Value != "cdc_relay" || !s.IsDefault || s.Help == "" {
				t.Errorf("postgres.slot: got %+v", s)
			}
		}
	}
}
