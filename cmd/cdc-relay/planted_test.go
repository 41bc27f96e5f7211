package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// plantedSecret is in every secret of the test below, and in what rows carry.
var plantedSecret = regexp.MustCompile(`planted-[a-z]+`)

// Breaks it catches: a secret, a payload or a row's header in a log line, a metric, an answer of the API, a page, the
// output or an error of a command (seen to fail with the configuration shown as it is, and with every end of a stream
// logged); an error that is logged at every attempt.
func TestPlantedSecretsAppearNowhere(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	authority := harness.NewAuthority(t, "planted")
	certificate := authority.Issue(t, "broker", time.Now().Add(time.Hour), "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(certificate.CertFile, certificate.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "outbox.event.order"), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "alice", "planted-sasl"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := newServices(t, orderTopic)
	as := func(password string) string {
		return strings.Replace(s.pg.URL, "postgres@", "postgres:"+password+"@", 1)
	}
	sasl := file("sasl", "planted-wrong")
	environ := append(s.environ, "CDC_RELAY_POSTGRES_URL="+as("planted-url"),
		"CDC_RELAY_POSTGRES_REPLICATION_URL="+as("planted-repl"),
		"CDC_RELAY_POSTGRES_PASSWORD_FILE="+file("postgres", "planted-file"),
		"CDC_RELAY_KAFKA_BROKERS="+broker.ListenAddrs()[0], "CDC_RELAY_KAFKA_TLS_ENABLED=true",
		"CDC_RELAY_KAFKA_TLS_CA_FILE="+authority.File,
		"CDC_RELAY_KAFKA_SASL_MECHANISM=SCRAM-SHA-256", "CDC_RELAY_KAFKA_SASL_USERNAME=alice",
		"CDC_RELAY_KAFKA_SASL_PASSWORD_FILE="+sasl,
		"CDC_RELAY_HTTP_TOKEN_FILE="+file("token", "planted-token"), "CDC_RELAY_HTTP_SHOW_PAYLOADS=false",
		"CDC_RELAY_HTTP_READ=open",
		"CDC_RELAY_LOG_LEVEL=trace",
		"CDC_RELAY_OUTBOX_COLUMNS_HEADERS=headers")
	clean := func(where, text string) {
		t.Helper()
		if at := plantedSecret.FindStringIndex(text); at != nil {
			t.Errorf("%s holds a secret: …%s…", where, text[max(0, at[0]-120):min(len(text), at[1]+40)])
		}
	}
	command := func(environ []string, args ...string) outcome {
		o := cdcRelay(t, environ, args...)
		clean(strings.Join(args, " "), o.out+o.errors)
		return o
	}
	command(environ, "init", "--dry-run")
	command(environ, "init").want(t, exitDone, nil, nil)
	command(environ, "check").want(t, exitFailed, []string{"FAIL  broker "}, nil)
	away := append(environ, "CDC_RELAY_POSTGRES_URL=postgres://relay:planted-url@127.0.0.1:1/shop?sslpassword=planted-ssl")
	command(away, "check").want(t, exitFailed, []string{"FAIL  postgres: "}, nil)

	run, began := startRelay(t, environ), time.Now()
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers) VALUES
		('order', 'a', 'placed', '{"card": "planted-payload"}', '{"traceparent": "planted-header"}'),
		('order', 'b', 'placed', '{"card": "planted-payload"}', '["planted-header"]'),
		('no/topic', 'c', 'placed', '{"card": "planted-payload"}', NULL)`)
	run.awaitStatus(t, "log in with SCRAM") // the wrong password of the broker
	clean("status", cdcRelay(t, nil, "status", "--http-listen", run.address).out)
	file("sasl", "planted-sasl")
	harness.Eventually(t, time.Minute, "the event goes out when the password is right", func(context.Context) string {
		if got := s.pg.Query(t,
			"SELECT (SELECT count(*) FROM cdc_relay_journal) || ' ' || (SELECT count(*) FROM outbox_events_dlq)"); got != "1 2" {
			return "journaled and dead: " + got
		}
		return ""
	})
	// A stream that breaks again and again is one line in half a minute, with a count.
	for range 5 {
		s.pg.Exec(t, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active AND "+
			"database = current_database()") // the others' tests have slots on the server, too
		run.awaitStatus(t, `"role": "active"`)
	}
	paths := []string{
		"/", "/console/console.js", "/metrics", "/livez", "/readyz", "/api/v1/status", "/api/v1/history", "/api/v1/notes",
		"/api/v1/config", "/api/v1/stream",
		"/api/v1/parked", "/api/v1/dlq", "/api/v1/dlq/" +
			s.pg.Query(t, "SELECT min(original_id::text) FROM outbox_events_dlq"), "/api/v1/nothing",
	}
	for _, path := range paths {
		clean(path, asked(t, http.MethodGet, run.address, path, ""))
	}
	for _, token := range []string{"wrong", "planted-token"} {
		clean("a change with token "+token[:5], asked(t, http.MethodPost, run.address, "/api/v1/dlq/replay", token))
	}
	command(append(environ, "CDC_RELAY_HTTP_LISTEN="+run.address), "check").want(t, exitDone,
		[]string{"takes alice by SCRAM-SHA-256", "warn  topic outbox.event.no/topic: such a name may have only"}, nil)
	if code := run.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("exit code: got %d, want 0", code)
	}
	text, minutes := run.log.String(), 1+int(time.Since(began)/time.Minute) // more of them on a busy machine
	clean("the log", text)
	if lines := strings.Count(text, "reconnecting"); lines == 0 || lines > 1+2*minutes {
		t.Errorf("the log says %d times in %d min that it connects again, want it once in half a minute", lines, minutes)
	}
	if lines := strings.Count(text, "\n"); lines > 120*minutes {
		t.Errorf("the log has %d lines for %d min with three events", lines, minutes)
	}
}

// asked is the beginning of an answer, headers included.
func asked(t *testing.T, method, address, path, token string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path,
		strings.NewReader(`{"ids": ["00000000-0000-0000-0000-000000000000"]}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	body := io.Reader(io.LimitReader(response.Body, 1<<20))
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		lines := bufio.NewReader(body)
		first, _ := lines.ReadString('\n')
		second, _ := lines.ReadString('\n')
		return fmt.Sprint(response.Header) + first + second
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return fmt.Sprint(response.Header) + string(text)
}
