package logins_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// judge runs what holds for each broker. The user has exactly the rights of the page.
func (p *place) judge(t *testing.T) {
	t.Run("Delivers", p.delivers)
	t.Run("Refused", p.direct().refusals)
	t.Run("Heals", p.heals)
	t.Run("Rotated", p.rotates)
	if strings.Contains(p.log.String(), "hunter2") || strings.Contains(p.log.String(), firstPassword) {
		t.Errorf("the log has a password: %s", &p.log)
	}
}

const events = 60

func (p *place) delivers(t *testing.T) {
	cfg := p.with(t)
	if err := examine(t, cfg, patience); err != nil {
		t.Errorf("check: got %v", err)
	}
	p.flow(t, cfg).Send(sinktest.Events(p.topic, 0, events))
	p.wantStored(t, cfg, events)
}

func (p *place) wantStored(t *testing.T, cfg config.Config, want int) {
	t.Helper()
	values, err := p.stored(t, cfg)
	if err != nil || len(values) != want {
		t.Errorf("got %d events in the topic and error %v, want %d", len(values), err, want)
	}
}

// refusal is a login that a person must correct.
type refusal struct {
	name  string
	set   []string // keys and values
	words []string // in the error
}

func (p *place) refusals(t *testing.T) {
	ca, cert, key := p.section+".ca_file", p.section+".cert_file", p.section+".key_file"
	as := func(c harness.Certificate) []string { return []string{cert, c.CertFile, key, c.KeyFile} }
	late := p.trusted.Issue(t, "late", time.Now().Add(-time.Hour))
	stranger := p.other.Issue(t, "stranger", time.Now().Add(time.Hour))
	swapped := harness.Certificate{CertFile: p.file("relay.pem"), KeyFile: stranger.KeyFile}
	empty := writeFile(t, filepath.Join(t.TempDir(), "empty.pem"), "")
	wrong := writeFile(t, filepath.Join(t.TempDir(), "password"), p.next)
	cfg := p.with(t)
	for _, r := range []refusal{
		{"UnknownAuthority", []string{ca, p.other.File}, []string{"not trusted", ca}},
		{"OtherName", []string{p.urlKey, p.url(cfg, p.tls, "localhost")}, []string{"another name", p.urlKey}},
		{"NoClientCertificate", []string{cert, "", key, ""}, []string{"no client certificate is configured", cert}},
		{"ExpiredClientCertificate", as(late), []string{"CN=late", "expired at", cert}},
		{"StrangeClientCertificate", as(stranger), []string{"CN=stranger", "CN=other", cert}},
		{"OtherKey", as(swapped), []string{"cannot be used", swapped.KeyFile, key}},
		{"EmptyAuthority", []string{ca, empty}, []string{empty, "holds no certificate", ca}},
		{"MissingAuthority", []string{ca, "/no/such/ca.pem"}, []string{"/no/such/ca.pem", "cannot be read", ca}},
		{"WrongPassword", []string{p.passwordKey, wrong}, []string{p.refused, p.passwordKey}},
		{"MissingPassword", []string{p.passwordKey, "/no/such/password"}, []string{"/no/such/password"}},
	} {
		t.Run(r.name, func(t *testing.T) { wantRefused(t, p.with(t, r.set...), r.words...) })
	}
	t.Run("ExpiredServer", func(t *testing.T) {
		p.show(t, expired)
		p.reread()
		wantRefused(t, cfg, "not valid at this time", "clock")
		p.show(t, good)
		p.reread()
	})
	t.Run("WithoutTLS", func(t *testing.T) {
		err := examine(t, p.with(t, p.urlKey, p.url(cfg, p.plain, "127.0.0.1"), ca, "", cert, "", key, ""), brief)
		if err == nil {
			t.Error("the port takes connections without TLS")
		}
		t.Log(err)
	})
}

// wantRefused checks that no one lets us in, and that the error is one that a person must see to, says what to look at,
// and shows no password.
func wantRefused(t *testing.T, cfg config.Config, words ...string) {
	t.Helper()
	err := examine(t, cfg, patience)
	if err == nil {
		t.Fatal("the broker let us in")
	}
	t.Log(err)
	if got := sink.TroubleOf(err, sink.ClusterTrouble); got != sink.ConfigurationTrouble {
		t.Errorf("trouble: got %d, want that of the configuration", got)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error: got %q, want it to mention %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), firstPassword) {
		t.Errorf("error: got %q, want no password in it", err)
	}
}

// heals has an engine begin with the wrong authorities, which blocks it by the key, parks nothing, and passes when the
// file is right.
func (p *place) heals(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	harness.CopyFile(t, ca, p.other.File)
	f := p.flow(t, p.with(t, p.section+".ca_file", ca))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		f.Send(sinktest.Events(p.topic, events, events))
	}()
	harness.Eventually(t, 30*time.Second, "the engine is blocked by the key", func(context.Context) string {
		s := f.Status()
		if s.State != sink.Blocked || !strings.Contains(s.Reason, p.section+".ca_file") {
			return s.State.String() + ": " + s.Reason
		}
		return ""
	})
	for _, r := range f.Troubles() {
		if r.Kind != sink.ConfigurationTrouble {
			t.Errorf("trouble: got %+v, want the kind of the configuration, whose events must not be parked", r)
		}
	}
	harness.CopyFile(t, ca, p.trusted.File)
	<-sent
}

// rotates changes the password, then the authority of the server's certificate, under an engine that is connected.
func (p *place) rotates(t *testing.T) {
	f := p.flow(t, p.with(t))
	f.Send(sinktest.Events(p.topic, 2*events, events))
	p.secret, p.next = p.next, p.secret
	p.change(p.secret)
	p.writePassword(t, p.secret)
	p.proxy.Cut()
	f.Send(sinktest.Events(p.topic, 3*events, events))
	p.show(t, renewed)
	p.reread()
	harness.CopyFile(t, p.file("ca.pem"), p.trusted.File, p.other.File)
	p.proxy.Cut()
	f.Send(sinktest.Events(p.topic, 4*events, events))
	p.wantStored(t, p.with(t), 5*events)
	p.show(t, good)
	p.reread()
}

// wantLacking checks that publishing, or else check or verify, says which right is missing and how to grant it, and
// returns what they say.
func (p *place) wantLacking(t *testing.T, words ...string) (all string) {
	t.Helper()
	cfg := p.with(t, p.lacking...)
	p.fresh++
	said := ""
	if err := examine(t, cfg, patience); err != nil {
		said += err.Error() + "\n"
	}
	if _, err := p.stored(t, cfg); err != nil {
		said += err.Error() + "\n"
	}
	f := p.flow(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	submitted := make(chan struct{})
	go func() {
		defer close(submitted)
		_, _ = f.Submit(ctx, sinktest.Events(p.topic, p.fresh, 1))
	}()
	harness.Eventually(t, 30*time.Second, "the missing right is told", func(context.Context) string {
		all = said + f.Failures() + f.Status().Reason // the trouble is over once what was written is read back
		for _, w := range words {
			if !strings.Contains(all, w) {
				return "got " + all + ", want " + w
			}
		}
		return ""
	})
	cancel()
	<-submitted
	return all
}

// revoked takes a right away under an engine that is connected, and gives it back: what was submitted in between is
// published then, and the engine says what it waits for.
func (p *place) revoked(t *testing.T, take, give func(), words ...string) {
	t.Helper()
	if harness.Count(t, "brokers broken from outside") == 0 {
		t.Skip("left to the night")
	}
	cfg := p.with(t)
	before, err := p.stored(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := p.flow(t, cfg)
	const first = 1000
	f.Send(sinktest.Events(p.topic, first, events))
	take()
	sends, sent := 0, make(chan struct{}, 1)
	sent <- struct{}{}
	// RabbitMQ looks at a channel's rights again once the channel was idle, for one to ten seconds.
	pause, due := time.Second, time.Now()
	harness.Eventually(t, 2*time.Minute, "the right that was taken away is told", func(context.Context) string {
		if time.Now().After(due) && len(sent) > 0 {
			<-sent
			sends++
			list := sinktest.Events(p.topic, first+sends*events, events)
			go func() {
				f.Send(list)
				sent <- struct{}{}
			}()
			due, pause = time.Now().Add(pause), min(2*pause, 12*time.Second)
		}
		s := f.Status()
		for _, w := range words {
			if !strings.Contains(s.Reason, w) {
				return s.State.String() + ": got " + s.Reason + ", want " + w
			}
		}
		return ""
	})
	t.Log(f.Status().Reason)
	give()
	<-sent
	p.wantStored(t, cfg, len(before)+(1+sends)*events)
}
