package secret

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// ClientCredentials configures the client credentials grant of an OAuth 2.0 server (RFC 6749, section 4.4).
type ClientCredentials struct {
	TokenURL   string            // of the token endpoint
	ClientID   string            // who asks
	SecretFile string            // what proves it; read again for each token
	Scope      string            // scopes with spaces between them; may be empty
	Parameters map[string]string // further ones of the request, such as audience
	CAFile     string            // PEM, the authorities to trust; empty: the system's
}

// OAuth is the source that asks a token endpoint. A token is kept for its lifetime by the server, without
// saying so for no longer than one login. There is one source for each way of asking in a process.
func OAuth(key string, c ClientCredentials) *Source {
	request := &clientcredentials.Config{ClientID: c.ClientID, TokenURL: c.TokenURL, Scopes: strings.Fields(c.Scope),
		EndpointParams: url.Values{}}
	for name, value := range c.Parameters {
		request.EndpointParams.Set(name, value)
	}
	return shared(key, fmt.Sprintf("%q", c), func(ctx context.Context) (answer, error) {
		return c.ask(ctx, request) // one at a time
	})
}

// ask gets a token. The request is changed, and remembers how the server wants to be told the secret. No error shows
// secret, token, or an answer that may hold one.
func (c ClientCredentials) ask(ctx context.Context, request *clientcredentials.Config) (answer, error) {
	a := answer{asked: time.Now()}
	secret, err := ReadFile(c.SecretFile)
	if err != nil {
		return a, fmt.Errorf("read the client's secret: %w", err)
	}
	if secret == "" {
		return a, fmt.Errorf("%s holds no client's secret", c.SecretFile)
	}
	client, err := c.client()
	if err != nil {
		return a, err
	}
	request.ClientSecret = secret
	token, err := request.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if refused, is := errors.AsType[*oauth2.RetrieveError](err); is {
		said := strings.ReplaceAll(refused.ErrorCode+" "+refused.ErrorDescription, secret, "…")
		return a, fmt.Errorf("%s answered %s%s", c.TokenURL, refused.Response.Status, quote(said))
	}
	switch {
	case ctx.Err() != nil:
		return a, fmt.Errorf("%s gave no token within %v: %w", c.TokenURL, time.Since(a.asked).Round(time.Millisecond),
			context.Cause(ctx))
	case err != nil:
		return a, fmt.Errorf("ask %s for a token: %w", c.TokenURL, err)
	case token.Type() != "Bearer":
		return a, fmt.Errorf("%s issued a token of the type %q, and Bearer is needed", c.TokenURL, token.Type())
	}
	a.password, a.until = token.AccessToken, token.Expiry
	return a, nil
}

// client makes the one request. It follows no redirect: the secret is for the server that was named.
func (c ClientCredentials) client() (*http.Client, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the token endpoint: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", c.CAFile)
		}
	}
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
