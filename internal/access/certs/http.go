package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Dress has a transport secure its connections by the files, each within the patience. Connections through a proxy keep
// the authorities that the files name now.
func (f Files) Dress(t *http.Transport, patience time.Duration) (err error) {
	if t.TLSClientConfig, err = f.Config(""); err != nil {
		return err
	}
	t.TLSClientConfig.Certificates = nil
	t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if f.CertFile == "" {
			return new(tls.Certificate), nil
		}
		pair, err := f.pair()
		return &pair, err
	}
	t.TLSHandshakeTimeout = patience
	dialer := &net.Dialer{Timeout: patience}
	t.DialContext = dialer.DialContext
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("read the address of the %s: %w", f.Names.Server, err)
		}
		inner, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		secured, err := f.Secure(bounded, inner, host)
		if err != nil {
			return nil, err // and no interface around a nil
		}
		return secured, nil
	}
	return nil
}
