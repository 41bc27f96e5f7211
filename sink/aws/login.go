package aws

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// loginPatience bounds the search for credentials: where there is no instance's metadata, asking for it hangs.
	loginPatience = 5 * time.Second
	// sharedHost is how many topics keep a connection for each of their requests.
	sharedHost = 8
	// idleTimeout is less than what the services close idle connections after.
	idleTimeout = 15 * time.Second
	// expiryWindow is how long before their end credentials are renewed.
	expiryWindow = time.Minute
)

// chain is where credentials are looked for, in words.
const chain = "looked for in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile of AWS_PROFILE in AWS's files, " +
	"the web identity of a service account, the container's role and the instance's role"

// account says where a service is, and as whom it is used.
type account struct {
	Region   string // empty: of AWS_REGION or the profile
	Endpoint string // URL instead of the service's own; empty: that, or what AWS's own variables and files say
	Number   string // that owns the destinations; empty: that of the credentials
	Section  string // of these keys, such as sqs
	Requests int    // of a topic, at a time
}

// login is the credentials, as AWS's SDK finds them, and the connections that they are used on.
type login struct {
	account   account
	config    sdk.Config
	cache     *sdk.CredentialsCache
	transport *http.Transport

	mu     sync.Mutex // guards what follows
	number string     // of the credentials' account, once it was asked for
	caller string     // the ARN of who they belong to
}

// openLogin reads AWS's environment and files. It asks no one.
func openLogin(ctx context.Context, a account) (*login, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost, t.MaxIdleConns = max(a.Requests, 1)*sharedHost, 0
		t.IdleConnTimeout = idleTimeout
	})
	load := func(ctx context.Context) (sdk.Config, error) {
		options := []func(*config.LoadOptions) error{config.WithHTTPClient(client)}
		if a.Region != "" {
			options = append(options, config.WithRegion(a.Region))
		}
		return config.LoadDefaultConfig(ctx, options...)
	}
	c, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read AWS's configuration: %w", err)
	}
	if c.Region == "" {
		return nil, fmt.Errorf("no AWS region is known: set %s.region, AWS_REGION, or region in the profile", a.Section)
	}
	l := &login{account: a, config: c}
	if own, is := c.HTTPClient.(*awshttp.BuildableClient); is { // with the authorities of AWS_CA_BUNDLE
		l.transport = own.GetTransport()
		l.config.HTTPClient = &http.Client{Transport: l.transport}
	}
	// Read again each time, as a rotation changes AWS's files.
	l.cache = sdk.NewCredentialsCache(sdk.CredentialsProviderFunc(func(ctx context.Context) (sdk.Credentials, error) {
		c, err := load(ctx)
		if err != nil {
			return sdk.Credentials{}, err
		}
		return c.Credentials.Retrieve(ctx)
	}), func(o *sdk.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow })
	l.config.Credentials = l.cache
	l.config.Retryer = func() sdk.Retryer { return sdk.NopRetryer{} } // the engine retries, and must know each outcome
	return l, nil
}

// Config configures the clients of services.
func (l *login) Config() sdk.Config { return l.config }

// Endpoint is the URL to speak to, nil for the service's own.
func (l *login) Endpoint() *string {
	if l.account.Endpoint == "" {
		return nil
	}
	return &l.account.Endpoint
}

// Region is where the destinations are.
func (l *login) Region() string { return l.config.Region }

// Partition is the part of AWS that the region is in: the second word of an ARN.
func (l *login) Partition() string {
	switch {
	case strings.HasPrefix(l.config.Region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(l.config.Region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// Known is the number of the account that owns the destinations, or * while it is not known.
func (l *login) Known() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.account.Number != "":
		return l.account.Number
	case l.number != "":
		return l.number
	}
	return "*"
}

// Number is the number of the account that owns the destinations. AWS tells everybody who they are, whatever their
// rights.
func (l *login) Number(ctx context.Context) (string, error) {
	if known := l.Known(); known != "*" {
		return known, nil
	}
	if _, err := l.Caller(ctx); err != nil {
		return "", fmt.Errorf("ask which account this is (or set %s.account): %w", l.account.Section, err)
	}
	return l.Known(), nil
}

// Caller is the ARN of who the credentials belong to.
func (l *login) Caller(ctx context.Context) (string, error) {
	l.mu.Lock()
	caller := l.caller
	l.mu.Unlock()
	if caller != "" {
		return caller, nil
	}
	client := sts.NewFromConfig(l.config, func(o *sts.Options) { o.BaseEndpoint = l.Endpoint() })
	answer, err := client.GetCallerIdentity(ctx, nil)
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number, l.caller = sdk.ToString(answer.Account), sdk.ToString(answer.Arn)
	return l.caller, nil
}

// ready makes sure that there are credentials.
func (l *login) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	if _, err := l.cache.Retrieve(ctx); err != nil {
		return &noCredentials{err}
	}
	return nil
}

// renew has the credentials looked for again, also in files that have changed.
func (l *login) renew() {
	l.cache.Invalidate()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number, l.caller = "", ""
}

func (l *login) close() {
	if l.transport != nil {
		l.transport.CloseIdleConnections()
	}
}

// noCredentials is the error of a search that found nothing.
type noCredentials struct{ err error }

func (e *noCredentials) Error() string {
	return fmt.Sprintf("no AWS credentials were found, and no event is sent without: give the relay some (%s): %v", chain,
		e.err)
}

// Unwrap is the SDK's own error.
func (e *noCredentials) Unwrap() error { return e.err }

// Trouble implements [sink.Troubled].
func (*noCredentials) Trouble() sink.Trouble { return sink.ConfigurationTrouble }
