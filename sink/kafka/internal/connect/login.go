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
)

// Mechanisms are those that a login can use.
func Mechanisms() []string { return []string{Plain, ScramSHA256, ScramSHA512} }

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
	// Versions are not asked for: these are in every broker since Kafka 1.0.
	pc := protocol.NewConn(c, d.config.ClientID)
	pc.SetVersions(map[protocol.ApiKey]int16{protocol.SaslHandshake: 1, protocol.SaslAuthenticate: 0})
	return d.config.SASL.logIn(pc, c.password)
}

// logIn runs the mechanism over a connection.
func (s *SASL) logIn(pc *protocol.Conn, password string) error {
	talk, err := s.talk(password)
	if err != nil {
		return err
	}
	answer, err := pc.RoundTrip(&saslhandshake.Request{Mechanism: s.Mechanism})
	if err != nil {
		return fmt.Errorf("ask for %s: %w", s.Mechanism, err)
	}
	h := answer.(*saslhandshake.Response)
	switch err := codes.ErrorOf(h.ErrorCode, ""); {
	case h.ErrorCode == codes.NoMechanism:
		return &LoginError{fmt.Sprintf("the broker offers %s on this port and not %s", strings.Join(h.Mechanisms, ", "),
			s.Mechanism), keySASL, err}
	case h.ErrorCode == codes.NoSASL:
		return &LoginError{"the broker does not use SASL on this port", keySASL + " and the port in kafka.brokers", err}
	case err != nil:
		return fmt.Errorf("ask for %s: %w", s.Mechanism, err)
	}
	for challenge := ""; ; {
		response, done, err := talk(challenge)
		if err != nil {
			return &LoginError{"the broker did not prove that it knows the password of " + s.Username, s.keys(), err}
		}
		if done {
			return nil
		}
		answer, err := pc.RoundTrip(&saslauthenticate.Request{AuthBytes: []byte(response)})
		if err != nil {
			return fmt.Errorf("log in with %s: %w", s.Mechanism, err)
		}
		r := answer.(*saslauthenticate.Response)
		if err := codes.ErrorOf(r.ErrorCode, r.ErrorMessage); err != nil {
			if r.ErrorCode == codes.NotAuthenticated {
				s.source().Refused()
				return &LoginError{fmt.Sprintf("the broker rejects the login of %s with %s", s.Username, s.Mechanism), s.keys(),
					err}
			}
			return fmt.Errorf("log in with %s: %w", s.Mechanism, err)
		}
		challenge = string(r.AuthBytes)
	}
}

// talk is our side of the mechanism: given the broker's words, at first none, it says ours, or that all is said.
func (s *SASL) talk(password string) (func(challenge string) (response string, done bool, err error), error) {
	if s.Mechanism == Plain {
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
		return nil, &LoginError{"user name or password contain characters that SCRAM does not allow", s.keys(), err}
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
