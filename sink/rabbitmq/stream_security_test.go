package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// secured opens a port with TLS before the target, which asks clients for a certificate of the authority.
func secured(t *testing.T, target string, authority *harness.Authority) (port string) {
	t.Helper()
	own := authority.Issue(t, "server", time.Now().Add(time.Hour), "localhost")
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(authority.File)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(pem)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		}
	}()
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Breaks it catches: a server with another authority's certificate that is trusted, a client certificate or a password
// file that is not used. Seen to fail with the server's certificate not looked at.
func TestTLSAndPasswordFile(t *testing.T) {
	harness.Full(t)
	b := newStreamBed(t)
	ours, theirs := harness.NewAuthority(t, "ours"), harness.NewAuthority(t, "theirs")
	client := ours.Issue(t, "client", time.Now().Add(time.Hour))
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("guest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := b.config()
	c.URL = "rabbitmq-stream+tls://guest@localhost:" + secured(t, b.server.StreamAddr, ours)
	c.PasswordFile = password
	c.TLS = certs.Files{CAFile: ours.File, CertFile: client.CertFile, KeyFile: client.KeyFile}
	topic := b.topic(t)
	sinktest.NewFlow(t, newStream(t, c)).Send(sinktest.Events(topic, 0, 100))
	sinktest.WantOnceInOrder(t, b.read(t, topic), 100)

	c.TLS.CAFile = theirs.File
	_, _, err := newStream(t, c).Examine(context.Background(), "")
	if err == nil || sink.TroubleOf(err, sink.ClusterTrouble) != sink.ConfigurationTrouble {
		t.Errorf("a server that another authority vouches for: got %v, want trouble of the configuration", err)
	}
}
