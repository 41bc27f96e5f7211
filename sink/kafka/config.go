package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/recordset"
)

// Defaults of [Config].
const (
	defaultClientID       = "cdc-relay"
	defaultMaxBatchBytes  = 1 << 20
	defaultRequestTimeout = 10 * time.Second
	defaultDialTimeout    = 3 * time.Second
)

// Bounds of [Config.MaxBatchBytes].
const (
	minBatchBytes   = 1 << 10
	maxRequestBytes = 100 << 20 // a broker's default socket.request.max.bytes
)

// Compression is a codec of record batches, numbered as in the attributes of a batch; its String is the codec's name as
// in Kafka's compression.type.
type Compression = recordset.Compression

// The codecs.
const (
	None   = recordset.None
	Gzip   = recordset.Gzip
	Snappy = recordset.Snappy
	LZ4    = recordset.LZ4
	Zstd   = recordset.Zstd
)

// BrokerError is an error that a broker answered: its Code, the code's Name as in Kafka's own table of errors, and the
// broker's Message, which is often empty.
type BrokerError = codes.BrokerError

// ParseCompression is the codec of a name.
func ParseCompression(name string) (Compression, error) { return recordset.ParseCompression(name) }

// Config says which cluster, and how to talk to it. The zero value of each field but Brokers stands for its default.
type Config struct {
	Brokers  []string // host:port of brokers to begin with; the cluster names the others. Required
	ClientID string   // what the brokers log about us; "": cdc-relay

	Compression Compression // of the records of a batch; a batch that it does not make smaller goes as it is
	// largest batch, header included, in bytes before compression; the topic's own limit holds as well. 0: 1 MiB
	MaxBatchBytes int

	// RequestTimeout bounds how long a leader may wait for its followers; the answer itself is waited for half as long
	// again. DialTimeout bounds a connection's set-up. 0: 10 s and 3 s.
	RequestTimeout, DialTimeout time.Duration

	// Dial opens connections instead of a net.Dialer: for proxies and tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	TLS  *TLS  // nil: none
	SASL *SASL // nil: none

	NewTopics NewTopics

	Hooks Hooks

	// For tests that count.
	patient bool // no answer takes unusually long
	lazy    bool // nothing is asked for before it is needed
}

// TLS says how to secure the connections. The files are read again at each connect, so that renewed certificates are
// used without a restart; connections that are open keep theirs.
type TLS struct {
	CAFile            string // PEM, the authorities to trust; empty: the system's
	CertFile, KeyFile string // PEM, the client certificate and its key; both or none
	ServerName        string // that the brokers' certificates must have; empty: the host's of each
}

// SASL says how to log in: with user name and password, or, by OAUTHBEARER, with a token from one of four places.
// Files are read again at each connect.
type SASL struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER
	Username     string
	PasswordFile string // the password, with or without the end of its line

	PasswordCommand []string // a program and its arguments that print the password; see package secret

	TokenFile    string   // the token, with or without the end of its line
	TokenCommand []string // a program and its arguments that print it
	OAuth        *OAuth   // a server that issues it; nil: none
	AWSRegion    string   // of Amazon MSK: Sign signs tokens for it
	Sign         Signer
	Extensions   map[string]string // that go with the token, such as Confluent Cloud's logicalCluster
}

// OAuth is how a token is asked for.
type OAuth = secret.ClientCredentials

// Signer makes a token for a region of AWS, and says until when the token is valid. The SDK that signs is left to the
// caller, so that a program without MSK does not link it.
type Signer = secret.Signer

// LoginError says why a broker and we do not come together although it can be reached: What happened, what to Check,
// and the cause, Err, if there is more to say. Waiting does not heal it: a person must act.
type LoginError = connect.LoginError

// connections is how c wants connections.
func (c Config) connections() connect.Config {
	return connect.Config{
		ClientID: c.ClientID, DialTimeout: c.DialTimeout, Dial: c.Dial, TLS: (*connect.TLS)(c.TLS),
		SASL: (*connect.SASL)(c.SASL),
	}
}

// Connector opens connections as a driver of this configuration does, secured and logged in: for other clients of the
// same cluster, which then need no TLS or SASL of their own. The caller closes the connection.
func Connector(c Config) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the connections to Kafka: %w", err)
	}
	return connect.NewDialer(context.Background(), c.connections()).Dial, nil
}

// Transporter makes a kafka-go Transport over connections as those of [Connector], which are renewed before the broker
// ends the sessions of their logins.
func Transporter(c Config) (Transport, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure the connections to Kafka: %w", err)
	}
	return connect.NewDialer(context.Background(), c.connections()).Lines(func() *kafkago.Transport {
		return &kafkago.Transport{ClientID: c.ClientID}
	}), nil
}

// Transport sends requests to the brokers that they are for.
type Transport interface {
	kafkago.RoundTripper
	CloseIdleConnections()
}

// Hooks are told what happens, so that this package needs no logger. Each may be nil. They are called from the
// driver's goroutines and must not block.
type Hooks struct {
	LeaderMoved    func(topic string, partition, from, to int32) // -1: none
	MetadataFailed func(err error)                               // no broker could be asked who leads what
	TopicCreated   func(topic string)
	ProducerReset  func(Reset)
	Odd            func(Odd) // at most once in 10 s for a partition
	Alarm          func(sink.Alarm)
}

// Reset reports that a partition got a new producer id because the old one's sequence could not be continued.
type Reset struct {
	Topic     string
	Partition int32
	Cause     string // the broker's name for it, such as OUT_OF_ORDER_SEQUENCE_NUMBER, or ours
	Uncertain int    // records that may be in the topic twice from now on; 0 when the old range was certainly not written
}

// withDefaults checks c, reporting every problem at once, and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	var problems []error
	if len(c.Brokers) == 0 {
		problems = append(problems, errors.New("no brokers: give at least one host:port"))
	}
	for _, b := range c.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			problems = append(problems, fmt.Errorf("broker %q is not host:port: %w", b, err))
		}
	}
	if !c.Compression.Valid() {
		problems = append(problems, fmt.Errorf("unknown compression %d", int8(c.Compression)))
	}
	c.ClientID = cmp.Or(c.ClientID, defaultClientID)
	c.MaxBatchBytes = cmp.Or(c.MaxBatchBytes, defaultMaxBatchBytes)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, defaultRequestTimeout)
	c.DialTimeout = cmp.Or(c.DialTimeout, defaultDialTimeout)
	if c.MaxBatchBytes < minBatchBytes || c.MaxBatchBytes > maxRequestBytes {
		problems = append(problems, fmt.Errorf("largest batch of %d bytes: want %d to %d", c.MaxBatchBytes, minBatchBytes,
			maxRequestBytes))
	}
	if c.RequestTimeout < 0 || c.DialTimeout < 0 {
		problems = append(problems, errors.New("a timeout is negative"))
	}
	if c.SASL != nil && !slices.Contains(connect.Mechanisms(), c.SASL.Mechanism) {
		problems = append(problems, fmt.Errorf("SASL mechanism %q: want one of %s", c.SASL.Mechanism,
			strings.Join(connect.Mechanisms(), ", ")))
	}
	if c.SASL != nil && c.SASL.AWSRegion != "" && c.SASL.Sign == nil {
		problems = append(problems, errors.New("SASL has an AWS region and no function that signs its tokens"))
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, errors.Join(problems...)
}
