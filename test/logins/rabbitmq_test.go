package logins_test

import (
	"regexp"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// Breaks it catches: as with Redis, and a client certificate that is no login. Seen to fail with
// the client's own error shown instead of what the server said by TLS.
func TestSecuredRabbitMQ(t *testing.T) {
	harness.Full(t)
	t.Parallel() // most of it is waiting
	certificates := newPKI(t)
	server := harness.SecuredRabbitMQ(t, certificates.server, certificates.trusted)
	channel := adminChannel(t, certificates, server)
	common := place{pki: certificates, passwordKey: "rabbitmq.password_file", reread: func() {},
		change: func(password string) { server.Ctl(t, "change_password", "relay", password) }}

	exchanges := common
	exchanges.page, exchanges.section, exchanges.urlKey = "rabbitmq", "rabbitmq.tls", "rabbitmq.url"
	exchanges.tls, exchanges.plain, exchanges.topic = "amqps", "amqp", "outbox.event"
	exchanges.refused = "username or password not allowed"
	exchanges.configure(t, server.Addr)
	makeQueue(t, channel, exchanges.topic)
	exchanges.read = func(t *testing.T) []string {
		q, err := channel.QueueDeclarePassive(exchanges.topic, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return make([]string, q.Messages)
	}
	commands := exchanges.commands(t, "rabbitmqctl")
	for _, c := range commands {
		server.Ctl(t, c...)
	}
	t.Run("Exchanges", exchanges.judge)
	t.Run("ExchangesRevoked", func(t *testing.T) {
		exchanges.revoked(t, func() { server.Ctl(t, "set_permissions", "--vhost", "/", "relay", "", "", "") },
			func() { server.Ctl(t, commands[1]...) }, "403", "rabbitmqctl set_permissions")
	})
	t.Run("ExchangesWithoutWrite", func(t *testing.T) {
		server.Ctl(t, "set_permissions", "--vhost", "/", "relay", "", "", "")
		paste(t, "rabbitmqctl", server.Ctl,
			exchanges.wantLacking(t, "403", "rabbitmqctl set_permissions --vhost / relay '' '^outbox\\.event$' ''"))
		exchanges.flow(t, exchanges.with(t)).Send(sinktest.Events(exchanges.topic, 20*events, events))
	})

	streams := common
	streams.page, streams.section, streams.urlKey = "rabbitmq-stream", "rabbitmq_stream.tls", "rabbitmq.stream_url"
	streams.tls, streams.plain, streams.topic = "rabbitmq-stream+tls", "rabbitmq-stream", "outbox.event.order"
	streams.refused, streams.secret, streams.next = "wrong user or password", exchanges.secret, exchanges.next
	streams.configure(t, server.StreamAddr)
	grant := streams.commands(t, "rabbitmqctl")[1]
	server.Ctl(t, grant...)
	missing := examine(t, streams.with(t), patience)
	if missing == nil {
		t.Fatal("the stream is there before it is made")
	}
	paste(t, "rabbitmqadmin", server.Admin, missing.Error())
	t.Run("Streams", streams.judge)
	// A publisher that is declared keeps its right, so only those without it from the start are told.
	for right, at := range map[string]int{"Write": len(grant) - 2, "Read": len(grant) - 1} {
		t.Run("StreamsWithout"+right, func(t *testing.T) {
			less := slices.Clone(grant)
			less[at] = ""
			server.Ctl(t, less...)
			paste(t, "rabbitmqctl", server.Ctl,
				streams.wantLacking(t, "(16)", `rabbitmqctl set_permissions --vhost / relay '' '^outbox\.event\.order$'`))
			if err := examine(t, streams.with(t), patience); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("CertificateAsLogin", func(t *testing.T) {
		server.Ctl(t, commands[1]...)
		cfg := exchanges.with(t, exchanges.urlKey,
			exchanges.url(exchanges.with(t), exchanges.tls, "127.0.0.1")+"?auth_mechanism=external", exchanges.passwordKey, "")
		if err := examine(t, cfg, patience); err != nil {
			t.Fatal(err)
		}
		exchanges.flow(t, cfg).Send(sinktest.Events(exchanges.topic, 5*events, events))
	})
}

// paste runs the first command of the tool that a text names.
func paste(t *testing.T, tool string, run func(t testing.TB, words ...string), text string) {
	t.Helper()
	run(t, words(t, regexp.MustCompile(tool + ` ([^;\n]*)`).FindStringSubmatch(text)[1])...)
}

// adminChannel is a channel of the user who may everything.
func adminChannel(t *testing.T, p *pki, server *harness.RabbitServer) *amqp.Channel {
	t.Helper()
	own := p.trusted.Issue(t, "admin", time.Now().Add(time.Hour))
	secured, err := certs.Files{CAFile: p.trusted.File, CertFile: own.CertFile, KeyFile: own.KeyFile}.Config("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.DialTLS("amqps://guest:guest@"+server.Addr+"/", secured)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// makeQueue makes the exchange with a queue of the same name.
func makeQueue(t *testing.T, ch *amqp.Channel, name string) {
	t.Helper()
	err := ch.ExchangeDeclare(name, "topic", true, false, false, false, nil)
	if err == nil {
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
	}
	if err == nil {
		err = ch.QueueBind(name, "#", name, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}
