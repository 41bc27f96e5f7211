package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/xdg-go/scram"

	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// The SASL mechanisms.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// Mechanisms are those that a login can use.
func Mechanisms() []string { return []string{Plain, ScramSHA256, ScramSHA512, OAuthBearer} }

// logIn secures and authenticates a new connection before kafka-go sees it: there the login has no deadline, drops the
// broker's words, and takes a connection that ends for a wrong password.
func (d *Dialer) logIn(ctx context.Context, c *conn) error {
	if d.config.TLS == nil && d.config.SASL == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.DialTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := c.raw.SetDeadline(deadline); err != nil {
		return fmt.Errorf("bound the login: %w", err)
	}
	err := d.prove(ctx, c)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("log in: no answer in %v: %w", d.config.DialTimeout, err)
	}
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	return c.raw.SetDeadline(time.Time{})
}

func (d *Dialer) prove(ctx context.Context, c *conn) error {
	if d.config.TLS != nil {
		host, _, err := net.SplitHostPort(c.address)
		if err != nil {
			return err
		}
		secured, err := d.config.TLS.handshake(ctx, c.raw, host)
		if err != nil {
			return err
		}
		c.Conn = secured
	}
	if d.config.SASL == nil {
		return nil
	}
	pc := protocol.NewConn(c, d.config.ClientID)
	versions, err := loginVersions(pc)
	if err != nil {
		return err
	}
	pc.SetVersions(versions)
	began := time.Now()
	lifetime, err := d.config.SASL.logIn(pc, c.password)
	if err == nil && lifetime > 0 {
		c.renewal = began.Add(lifetime / renewalParts * (renewalParts - 1))
	}
	return err
}

// renewalParts: a session is renewed in the last of its so many parts, as Java's clients do it in the last 5 to 15 %.
const renewalParts = 7

// loginVersions are those of the requests of a login. Version 1 of the second, in brokers since Kafka 2.2, tells how
// long the session lasts (KIP-368).
func loginVersions(pc *protocol.Conn) (map[protocol.ApiKey]int16, error) {
	answer, err := pc.RoundTrip(new(apiversions.Request))
	if err != nil {
		return nil, fmt.Errorf("ask what the broker speaks: %w", err)
	}
	versions := map[protocol.ApiKey]int16{protocol.SaslHandshake: 1, protocol.SaslAuthenticate: 0}
	for _, k := range answer.(*apiversions.Response).ApiKeys {
		if protocol.ApiKey(k.ApiKey) == protocol.SaslAuthenticate {
			versions[protocol.SaslAuthenticate] = min(k.MaxVersion, 1)
		}
	}
	return versions, nil
}

// logIn runs the mechanism over a connection, and returns how long the broker lets the session last; 0: without end.
func (s *SASL) logIn(pc *protocol.Conn, password string) (time.Duration, error) {
	talk, err := s.talk(password)
	if err != nil {
		return 0, err
	}
	if err := s.agree(pc); err != nil {
		return 0, err
	}
	lifetime := time.Duration(0)
	for challenge := ""; ; {
		response, done, err := talk(challenge)
		if IsLoginError(err) {
			return 0, err
		}
		if err != nil {
			return 0, &LoginError{What: "the broker did not prove knowledge of the password of " + s.Username,
				Check: s.keys(), Err: err}
		}
		if done {
			return lifetime, nil
		}
		answer, err := pc.RoundTrip(&saslauthenticate.Request{AuthBytes: []byte(response)})
		if err != nil {
			return 0, fmt.Errorf("log in with %s: %w", s.Mechanism, err)
		}
		r := answer.(*saslauthenticate.Response)
		if err := codes.ErrorOf(r.ErrorCode, r.ErrorMessage); err != nil {
			if r.ErrorCode == codes.NotAuthenticated {
				return 0, s.rejected(password, err)
			}
			return 0, fmt.Errorf("log in with %s: %w", s.Mechanism, err)
		}
		challenge, lifetime = string(r.AuthBytes), time.Duration(r.SessionLifetimeMs)*time.Millisecond
	}
}

// agree asks for the mechanism.
func (s *SASL) agree(pc *protocol.Conn) error {
	answer, err := pc.RoundTrip(&saslhandshake.Request{Mechanism: s.Mechanism})
	if err != nil {
		return fmt.Errorf("ask for %s: %w", s.Mechanism, err)
	}
	h := answer.(*saslhandshake.Response)
	switch err := codes.ErrorOf(h.ErrorCode, ""); {
	case h.ErrorCode == codes.NoMechanism:
		return &LoginError{What: fmt.Sprintf("the broker offers %s on this port and not %s",
			strings.Join(h.Mechanisms, ", "), s.Mechanism), Check: keySASL, Err: err}

	case h.ErrorCode == codes.NoSASL:
		return &LoginError{What: "the broker does not use SASL on this port",
			Check: keySASL + " and the port in kafka.brokers", Err: err}
	case err != nil:
		return fmt.Errorf("ask for %s: %w", s.Mechanism, err)
	}
	return nil
}

// talk is our side of the mechanism: given the broker's words, at first none, it says ours, or that all is said.
func (s *SASL) talk(password string) (func(challenge string) (response string, done bool, err error), error) {
	switch s.Mechanism {
	case OAuthBearer:
		return s.bearer(password)
	case Plain:
		said := false
		return func(string) (string, bool, error) {
			if said {
				return "", true, nil
			}
			said = true
			return "\x00" + s.Username + "\x00" + password, false, nil
		}, nil
	}
	hash := scram.SHA256
	if s.Mechanism == ScramSHA512 {
		hash = scram.SHA512
	}
	client, err := hash.NewClient(s.Username, password, "")
	if err != nil {
		return nil, &LoginError{What: "user name or password contain characters that SCRAM does not allow",
			Check: s.keys(), Err: err}
	}
	conversation := client.NewConversation()
	return func(challenge string) (string, bool, error) {
		response, err := conversation.Step(challenge)
		return response, err == nil && conversation.Done(), err
	}, nil
}

// Pauses between two logins at an address after the broker refused one: passwords that are tried too often get locked.
// It is also how long a corrected file may go unnoticed.
const (
	firstLoginPause = 250 * time.Millisecond
	lastLoginPause  = 5 * time.Second
	loginMemory     = time.Minute // after which a refusal counts as the first
)

// refusal is the last failed login at an address.
type refusal struct {
	err   error
	at    time.Time
	pause time.Duration
}

// refusedLately is the refusal that is too young for another try.
func (d *Dialer) refusedLately(address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.refusals[address]; r != nil && time.Since(r.at) < r.pause {
		return r.err
	}
	return nil
}

// noteRefusal remembers an error that waiting does not heal.
func (d *Dialer) noteRefusal(address string, err error) {
	if !IsLoginError(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.refusals[address]
	if r == nil || time.Since(r.at) > loginMemory {
		r = &refusal{pause: firstLoginPause / 2}
		if d.refusals == nil {
			d.refusals = make(map[string]*refusal)
		}
		d.refusals[address] = r
	}
	r.err, r.at, r.pause = err, time.Now(), min(2*r.pause, lastLoginPause)
}
