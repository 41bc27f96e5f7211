package webhook

import (
	"errors"
	"net/http"
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
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return nil, errors.New("a client certificate for webhooks needs both its file and its key's")
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true, MaxResponseHeaderBytes: maxAnswer,
		MaxIdleConnsPerHost: c.Lanes * sharedHost, IdleConnTimeout: idleTimeout,
	}
	return t, c.TLS.Dress(t, dialTimeout)
}
