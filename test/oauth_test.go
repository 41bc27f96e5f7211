package test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Kafka wants tokens that live for seconds, and ends each connection whose session is over; a server issues them by
// client credentials. In the middle the server is away for longer than a token lives, hangs, and denies the client.
// Breaks it catches: events lost or doubled where a session ends, a token kept after its end, a relay that parks events
// or halts because it cannot log in, or that does not say why; a secret that it shows. Seen to fail with tokens kept
// for an hour and through a refusal, and with the endpoint's answer shown as it is.
func TestKafkaTokensRotateUnderLoad(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	const lifetime = 3 * time.Second
	issuer := harness.NewIssuer(t, lifetime)
	kafka := harness.NewOwnKafka(t, harness.KafkaConfig{Java: issuer.Java(),
		Listeners: []harness.Listener{issuer.BearerListener("BEARER", 2*time.Second)}})
	secret := filepath.Join(t.TempDir(), "secret")
	writeSecret(t, secret, harness.IssuerSecret)
	s := startScenario(t, harness.Postgres(t), kafka, "kafka.brokers", kafka.Listeners["BEARER"],
		"kafka.sasl.mechanism", "OAUTHBEARER", "kafka.sasl.oauth.token_url", issuer.TokenURL,
		"kafka.sasl.oauth.client_id", harness.IssuerClient, "kafka.sasl.oauth.client_secret_file", secret,
		"kafka.sasl.oauth.parameters", map[string]string{"audience": harness.IssuerAudience})
	load := s.load(t, harness.Workload{Rate: 1000})
	rotations := harness.Count(t, "rotated tokens")
	for n := range 3 {
		waitRotated(t, issuer, (n+1)*rotations/3)
		s.endpointTrouble(t, issuer, n)
	}
	s.relay.WaitReady(t, time.Minute)
	load.Stop(t)
	s.settled(t)
	report := s.judge(t, 0)
	if parked := s.relay.Metric(t, "outbox_parked_events"); parked != 0 {
		t.Errorf("parked events: got %v, want none", parked)
	}
	log := s.relay.Log(t)
	for _, leak := range []string{harness.IssuerSecret, "eyJ", `"message":"halted"`} { // eyJ: how a JWT begins
		if strings.Contains(log, leak) {
			t.Errorf("the log contains %s", leak)
		}
	}
	t.Logf("%d rotations, %d tokens under %d events; one outage of the endpoint, one that hangs, one denial",
		issuer.Rotations(), issuer.Issued(), report.Expected)
}

// waitRotated waits until tokens were replaced so often.
func waitRotated(t *testing.T, issuer *harness.Issuer, times int) {
	t.Helper()
	harness.Eventually(t, 10*time.Minute, "tokens are replaced", func(context.Context) string {
		if got := issuer.Rotations(); got < times {
			return fmt.Sprintf("%d times of %d", got, times)
		}
		return ""
	})
}

// endpointTrouble is one of three ways not to get a token, for longer than a token lives, and its end.
func (s *scenario) endpointTrouble(t *testing.T, issuer *harness.Issuer, way int) {
	t.Helper()
	seconds := harness.Count(t, "token endpoint seconds")
	end := func() { issuer.Answer(nil) }
	switch way {
	case 0:
		issuer.Stop()
		end = func() { issuer.Start(t) }
	case 1:
		issuer.Answer(harness.Hang)
	case 2:
		issuer.Answer(harness.Deny)
	}
	began := time.Now()
	harness.Eventually(t, time.Minute, "the relay says that it gets no token", func(context.Context) string {
		if _, body := s.relay.Get(t, "/readyz"); !strings.Contains(body, "kafka.sasl.oauth") {
			return "it says " + body
		}
		return ""
	})
	<-time.After(time.Until(began.Add(time.Duration(seconds) * time.Second)))
	end()
	s.relay.WaitReady(t, time.Minute)
}
