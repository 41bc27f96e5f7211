// Package logins_test connects to brokers that speak TLS only, by the configuration and with the rights that the page
// of each tells, and judges what the relay says when certificate, password or right is another.
package logins_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// firstPassword is that of the pages.
const firstPassword, nextPassword = "change me", "changed hunter2"

// pki is the certificates of all servers and clients.
type pki struct {
	trusted, other *harness.Authority
	server         harness.Certificate // which every server shows
	shown          map[string]harness.Certificate
}

// The certificates that servers can show.
const (
	good, expired, renewed = "good", "expired", "renewed"
)

func newPKI(t *testing.T) *pki {
	t.Helper()
	p := &pki{trusted: harness.NewAuthority(t, "trusted"), other: harness.NewAuthority(t, "other")}
	tomorrow := time.Now().Add(24 * time.Hour)
	p.shown = map[string]harness.Certificate{
		good:    p.trusted.Issue(t, good, tomorrow, "127.0.0.1"),
		expired: p.trusted.Issue(t, expired, time.Now().Add(-time.Hour), "127.0.0.1"),
		renewed: p.other.Issue(t, renewed, tomorrow, "127.0.0.1"),
	}
	dir := t.TempDir()
	p.server = harness.Certificate{CertFile: filepath.Join(dir, "server.pem"),
		KeyFile: filepath.Join(dir, "server-key.pem")}
	p.show(t, good)
	return p
}

// show has servers show another certificate, as soon as they read it.
func (p *pki) show(t *testing.T, name string) {
	t.Helper()
	harness.CopyFile(t, p.server.CertFile, p.shown[name].CertFile)
	harness.CopyFile(t, p.server.KeyFile, p.shown[name].KeyFile)
}

// place is a broker as its page has it configured, behind a proxy that cuts.
type place struct {
	*pki
	page, section, urlKey, passwordKey string
	tls, plain                         string // schemes
	addr, at                           string // of the server; in the configuration, where it is the proxy's
	proxy                              *cutproxy.Plain
	text                               string // of the page's configuration, with this place's address and files
	dir                                string // of the files
	topic                              string
	log                                bytes.Buffer

	secret, next string   // the user's password, and the one that it is changed to
	fresh        int      // event that a user who lacks a right tries to publish
	lacking      []string // what is configured while a right is missing

	reread  func()                      // has the server read its certificates again
	change  func(password string)       // the user's at the server
	read    func(t *testing.T) []string // values in the topic, where the driver cannot read them
	refused string                      // what the error of a wrong password says
}

// configure reads the page and makes the files that its configuration names.
func (p *place) configure(t *testing.T, addr string) {
	t.Helper()
	p.proxy = cutproxy.StartPlain(t, addr)
	p.addr, p.at = addr, p.proxy.Addr
	p.dir = t.TempDir()
	harness.CopyFile(t, filepath.Join(p.dir, "ca.pem"), p.trusted.File)
	client := p.trusted.Issue(t, "relay", time.Now().Add(24*time.Hour))
	harness.CopyFile(t, filepath.Join(p.dir, "relay.pem"), client.CertFile)
	harness.CopyFile(t, filepath.Join(p.dir, "relay-key.pem"), client.KeyFile)
	if p.secret == "" {
		p.secret, p.next = firstPassword, nextPassword
	}
	p.writePassword(t, p.secret)
	address := regexp.MustCompile(`[a-z]+\.example\.com:\d+`)
	p.text = address.ReplaceAllString(strings.ReplaceAll(p.block(t, "yaml"), "/etc/relay", p.dir), p.at)
}

func (p *place) file(name string) string { return filepath.Join(p.dir, name) }

func (p *place) writePassword(t *testing.T, password string) {
	t.Helper()
	family, _, _ := strings.Cut(p.passwordKey, ".")
	writeFile(t, p.file(family+".password"), password)
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// block is the first block of a kind in the page's section about logins.
func (p *place) block(t *testing.T, kind string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/brokers/" + p.page + ".md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## TLS and logins\n")
	_, block, begins := strings.Cut(section, "\n```"+kind+"\n")
	block, _, ends := strings.Cut(block, "\n```\n")
	if !found || !begins || !ends {
		t.Fatalf("%s has no block of %q about logins", p.page, kind)
	}
	return block + "\n"
}

// commands are those of the page for a tool, as words.
func (p *place) commands(t *testing.T, tool string) (all [][]string) {
	t.Helper()
	for line := range strings.Lines(p.block(t, "console")) {
		if rest, is := strings.CutPrefix(line, "$ "+tool+" "); is {
			all = append(all, words(t, rest))
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no command of %s", p.page, tool)
	}
	return all
}

// words are those that a shell makes of a line.
func words(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// with is the configuration with other values for some keys.
func (p *place) with(t *testing.T, pairs ...string) config.Config {
	t.Helper()
	in := config.Input{File: "relay.yaml", Text: []byte(p.text)}
	for i := 0; i < len(pairs); i += 2 {
		in.Flags = append(in.Flags, config.Setting{Flag: "--set", Key: pairs[i], Value: pairs[i+1]})
	}
	in.Flags = append(in.Flags, config.Setting{Flag: "--set", Key: "message.topic", Value: p.topic})
	cfg, err := config.Load(in)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// flow publishes by the configuration.
func (p *place) flow(t *testing.T, cfg config.Config) *sinktest.Flow {
	t.Helper()
	d, err := brokers.New(cfg, zerolog.New(&p.log), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sinktest.NewFlow(t, d)
}

// patience is for one check, or one topic that is read, on a busy machine; brief for a check that may get no answer.
const patience, brief = 30 * time.Second, 5 * time.Second

// examine checks as the command does.
func examine(t *testing.T, cfg config.Config, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, _, err := brokers.Examine(ctx, cfg, nil)
	return err
}

// stored is how many events the topic holds.
func (p *place) stored(t *testing.T, cfg config.Config) (values []string, err error) {
	t.Helper()
	if p.read != nil {
		return p.read(t), nil
	}
	b, err := brokers.Browser(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	extent, err := b.Extent(ctx, p.topic)
	if err != nil {
		return nil, err
	}
	err = b.Browse(ctx, p.topic, extent.First, extent.Next, func(s sink.Stored) error {
		values = append(values, string(s.Value))
		return nil
	})
	return values, err
}

// direct is the place without the proxy, which can lose what the server says last.
func (p *place) direct() *place {
	d := *p
	d.at, d.text = p.addr, strings.ReplaceAll(p.text, p.at, p.addr)
	return &d
}

// url is the place's with another scheme or host.
func (p *place) url(cfg config.Config, scheme, host string) string {
	for _, shown := range cfg.Shown() {
		if shown.Key == p.urlKey {
			_, port, _ := net.SplitHostPort(p.at)
			text := strings.Replace(shown.Value, p.tls+"://", scheme+"://", 1)
			return strings.Replace(text, p.at, net.JoinHostPort(host, port), 1)
		}
	}
	return ""
}
