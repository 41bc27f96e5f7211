package rabbitmq_test

import (
	"regexp"
	"testing"
)

// ruins are the ways in which an exchange that is in use stops taking messages.
func (b *bed) ruins() map[string]func(*testing.T, string) func() {
	return map[string]func(*testing.T, string) func(){
		"ExchangeDeleted": func(t *testing.T, topic string) func() {
			if err := b.channel.ExchangeDelete(topic, false, false); err != nil {
				t.Fatal(err)
			}
			return func() { b.exchange(t, topic); b.queue(t, topic, nil) }
		},
		"QueueUnbound": func(t *testing.T, topic string) func() {
			if err := b.channel.QueueUnbind(topic, "#", topic, nil); err != nil {
				t.Fatal(err)
			}
			return func() { b.queue(t, topic, nil) }
		},
		"WriteDenied": func(t *testing.T, topic string) func() {
			const all = ".*"
			allow := func(write string) { b.server.Ctl(t, "set_permissions", "guest", all, write, all) }
			allow("^(?!" + regexp.QuoteMeta(topic) + "$)")
			b.proxy.Cut() // an open channel keeps what it may do
			return func() { allow(all) }
		},
	}
}
