package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	// idleTimeout is less than what common servers and load balancers close idle connections after (60 s and more).
	idleTimeout = 30 * time.Second
	// maxAnswer is how many bytes an answer's headers may take, and how much of its body is read so that the connection
	// can be used again.
	maxAnswer = 64 << 10
	// sharedHost is how many topics on one host keep a connection for each of their lanes.
	sharedHost = 8
)

// transport makes the connections: HTTP/1.1, kept open, at most one per lane in use.
func (c Config) transport() (*http.Transport, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := c.TLS.CAFile; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the authorities for webhooks: %w", err)
		}
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the authorities for webhooks: %s has no certificate", file)
		}
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return nil, errors.New("a client certificate for webhooks needs both its file and its key's")
	}
	if c.TLS.CertFile != "" {
		secured.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the client certificate for webhooks: %w", err)
			}
			return &pair, nil
		}
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: secured,
		TLSHandshakeTimeout: dialTimeout, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
		MaxIdleConnsPerHost: c.Lanes * sharedHost, IdleConnTimeout: idleTimeout,
	}, nil
}
