package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config].
const (
	DefaultLanes   = 16
	DefaultTimeout = 15 * time.Second
)

const (
	batchLimit  = 64 << 10 // bytes
	recordLimit = 16 << 20 // bytes
)

// Config says where the endpoints are and how to speak to them.
type Config struct {
	URL       string            // the endpoint of a topic is the path of its name below it; empty: only those of Endpoints
	Endpoints map[string]string // URLs of topics that have one of their own
	// Secret are the secrets that sign, several during a rotation, with spaces between them. SecretFile is the file that
	// has them instead, read again every few seconds; {topic} in its name is the topic. Neither: nothing is signed.
	Secret, SecretFile string
	Lanes              int           // of each endpoint: most requests at a time
	Timeout            time.Duration // of one request, from the connect to the end of the answer
	// Faults are the answers that mean that the event itself is refused permanently; Retried those after which its
	// attempts are spent first.
	Faults, Retried []int
	ContentType     string // of messages that have none of their own
	IDHeader        string // the header that becomes webhook-id
	UserAgent       string
	TLS             certs.Files // of endpoints whose URL begins with https
	// Transport makes the requests, and calls GotConn of the [net/http/httptrace.ClientTrace] in their contexts as soon as
	// the endpoint may see something of one; nil: HTTP connections of the driver's own.
	Transport http.RoundTripper
}

// Driver posts to endpoints. Make it with New.
type Driver struct {
	config     Config
	transport  http.RoundTripper
	changed    chan struct{} // never closed: endpoints do not change
	keyless    uint32        // for Partition, which is called one call at a time
	duplicates atomic.Uint64 // requests that were sent again after an unknown outcome
	told       atomic.Int64  // when an endpoint has answered last, see sinceStart; 0: never
	endpoints  sink.Nodes[*endpoint]
}

var (
	_ sink.Driver  = (*Driver)(nil)
	_ sink.Witness = (*Driver)(nil)
	_ sink.Dropper = (*Driver)(nil)
)

// New makes a driver, which connects when there is something to send.
func New(c Config) (*Driver, error) {
	if c.Lanes <= 0 {
		c.Lanes = DefaultLanes
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.URL != "" {
		if _, err := parseURL(c.URL); err != nil {
			return nil, fmt.Errorf("read the URL of the webhooks: %w", err)
		}
	}
	for topic, text := range c.Endpoints {
		if _, err := parseURL(text); err != nil {
			return nil, fmt.Errorf("read the URL of endpoint %s: %w", topic, err)
		}
	}
	if _, err := parseSecrets(c.Secret); err != nil {
		return nil, fmt.Errorf("read the secrets of the webhooks: %w", err)
	}
	if c.Transport == nil {
		transport, err := c.transport()
		if err != nil {
			return nil, err
		}
		c.Transport = transport
	}
	return &Driver{config: c, transport: c.Transport, changed: make(chan struct{})}, nil
}

// parseURL leaves the text out of its errors: a URL can hold a password.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("it is not an http or https URL")
	}
	u.Path = cmp.Or(u.Path, "/") // else what is joined to it begins without a slash
	return u, nil
}

// Word returns the broker's word for a topic.
func (*Driver) Word() string { return "endpoint" }

// Close implements [sink.Driver].
func (d *Driver) Close() error {
	if t, keeps := d.transport.(interface{ CloseIdleConnections() }); keeps {
		t.CloseIdleConnections()
	}
	return nil
}

// Partitions implements [sink.Driver]: the lanes. A topic without an endpoint has none.
func (d *Driver) Partitions(topic string) (int, error) {
	if e, _ := d.endpoint(topic); e.problem != nil {
		return 0, e.problem
	}
	return d.config.Lanes, nil
}

// Partition implements [sink.Driver]: by hash of the key, one after the other without one.
func (d *Driver) Partition(r *sink.Record, lanes int) int32 {
	if r.Key == nil {
		d.keyless++
		return int32(d.keyless % uint32(lanes))
	}
	h := fnv.New32a()
	_, _ = h.Write(r.Key)
	return int32(h.Sum32() % uint32(lanes))
}

// Node implements [sink.Driver]: each lane of each endpoint is one.
func (d *Driver) Node(topic string, lane int32) int32 {
	_, number := d.endpoint(topic)
	return number*int32(d.config.Lanes) + lane
}

// Changed implements [sink.Driver].
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Limits implements [sink.Driver].
func (d *Driver) Limits(string) (batch, record int) { return batchLimit, recordLimit }

// Size implements [sink.Driver].
func (d *Driver) Size(r *sink.Record) int { return sizeOf(r) }

// Produce implements [sink.Driver].
func (d *Driver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	e := d.endpoints.At(node / int32(d.config.Lanes))
	for _, b := range batches {
		e.produce(ctx, b)
	}
}

// Dropped implements [sink.Dropper]: what may have been received comes again as a new request.
func (d *Driver) Dropped(b *sink.Batch) {
	if f, _ := b.State.(*front); f != nil && f.uncertain {
		d.duplicates.Add(1)
	}
}

// PossibleDuplicates implements [sink.Witness].
func (d *Driver) PossibleDuplicates() uint64 { return d.duplicates.Load() }

// Alarms implements [sink.Witness]: there is nothing that could be noticed.
func (d *Driver) Alarms() []sink.Alarm { return nil }

// AnsweredSince reports whether an endpoint has answered after that time.
func (d *Driver) AnsweredSince(t time.Time) bool { return after(d.told.Load(), t) }

// start is where times begin that goroutines share as numbers. They are by the clock that is never set.
var start = time.Now()

func sinceStart(t time.Time) int64 { return int64(t.Sub(start)) }

// after reports whether a time kept as a number, 0 for none, is later than t.
func after(at int64, t time.Time) bool { return at != 0 && at > sinceStart(t) }

// Unreachable says since when no endpoint of those that were tried can be connected to, and why; nil when one can.
func (d *Driver) Unreachable() (since time.Time, err error) {
	for _, e := range d.endpoints.All() {
		down := e.down.Load()
		if down == nil && e.tried.Load() {
			return time.Time{}, nil
		}
		if down != nil && (since.IsZero() || down.since.Before(since)) {
			since, err = down.since, down.err
		}
	}
	return since, err
}

// endpoint is that of the topic, and its number.
func (d *Driver) endpoint(topic string) (e *endpoint, number int32) {
	return d.endpoints.Of(topic, func() *endpoint { return d.newEndpoint(topic) })
}

// newEndpoint looks up where the topic's events go.
func (d *Driver) newEndpoint(topic string) *endpoint {
	e := &endpoint{driver: d, topic: topic}
	text, named := d.config.Endpoints[topic]
	switch {
	case named:
		e.url, _ = parseURL(text) // New has looked at them
	case d.config.URL != "" && !strings.Contains(topic, "/") && topic != "." && topic != "..":
		base, _ := parseURL(d.config.URL)
		e.url = base.JoinPath(url.PathEscape(topic))
	default:
		e.problem = fmt.Errorf("no endpoint is called %s: add it to webhook.endpoints, or set webhook.url", topic)
		return e
	}
	e.user, e.url.User = e.url.User, nil
	e.keys.inline, e.keys.file = d.config.Secret, strings.ReplaceAll(d.config.SecretFile, "{topic}", topic)
	return e
}
