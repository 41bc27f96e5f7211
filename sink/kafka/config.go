package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config].
const (
	DefaultClientID       = "cdc-relay"
	DefaultMaxBatchBytes  = 1 << 20
	DefaultRequestTimeout = 10 * time.Second
	DefaultDialTimeout    = 3 * time.Second
)

// Config says which cluster, and how to talk to it. The zero value of each field but Brokers stands for its default.
type Config struct {
	Brokers  []string // host:port of brokers to begin with; the cluster names the others. Required
	ClientID string   // what the brokers log about us

	Compression   Compression // of the records of a batch; a batch that it does not make smaller goes as it is
	MaxBatchBytes int         // largest batch, header included, in bytes before compression; the topic's own limit holds as well

	// RequestTimeout is how long a leader may wait for its followers; the answer itself is waited for half as long
	// again. DialTimeout bounds a connection's set-up.
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

// Reset says that a partition got a new producer id because the old one's sequence could not be continued.
type Reset struct {
	Topic     string
	Partition int32
	Cause     string // the broker's name for it, such as OUT_OF_ORDER_SEQUENCE_NUMBER
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
	if !c.Compression.valid() {
		problems = append(problems, fmt.Errorf("there is no compression %d", int8(c.Compression)))
	}
	c.ClientID = or(c.ClientID, DefaultClientID)
	c.MaxBatchBytes = or(c.MaxBatchBytes, DefaultMaxBatchBytes)
	c.RequestTimeout = or(c.RequestTimeout, DefaultRequestTimeout)
	c.DialTimeout = or(c.DialTimeout, DefaultDialTimeout)
	if c.MaxBatchBytes < minBatchBytes || c.MaxBatchBytes > maxRequestBytes {
		problems = append(problems, fmt.Errorf("largest batch of %d bytes: want %d to %d", c.MaxBatchBytes, minBatchBytes, maxRequestBytes))
	}
	if c.RequestTimeout < 0 || c.DialTimeout < 0 {
		problems = append(problems, errors.New("a timeout is negative"))
	}
	if c.SASL != nil && !slices.Contains([]string{mechanismPlain, mechanismScram256, mechanismScram512}, c.SASL.Mechanism) {
		problems = append(problems, fmt.Errorf("SASL mechanism %q: want %s, %s or %s", c.SASL.Mechanism, mechanismPlain, mechanismScram256, mechanismScram512))
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c, errors.Join(problems...)
}

// or is v, or the default when v is zero.
func or[T comparable](v, fallback T) T {
	var zero T
	if v == zero {
		return fallback
	}
	return v
}
