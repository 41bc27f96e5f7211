package redisconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/cdc-relay/cdc-relay/sink"
)

// dialer opens connections with TLS, as the URL wants them.
func (c Config) dialer(url *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: c.DialTimeout}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		inner, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c.secure(ctx, inner, addr, url)
	}
}

// secure makes the connection to the address one with TLS. It closes it after an error.
func (c Config) secure(ctx context.Context, inner net.Conn, addr string, url *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		_ = inner.Close()
		return nil, fmt.Errorf("read the address of Redis: %w", err)
	}
	if url.InsecureSkipVerify && !c.TLS.Any() { // the URL has skip_verify=true
		secured := tls.Client(inner, url)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = inner.Close()
			return nil, &trouble{sink.ClusterTrouble, fmt.Errorf("connect to Redis: %w", err)}
		}
		return secured, nil
	}
	secured, err := c.TLS.Secure(ctx, inner, host)
	if err == nil {
		return secured, nil
	}
	return nil, &trouble{troubleOf(err), fmt.Errorf("connect to Redis: %w", err)}
}
