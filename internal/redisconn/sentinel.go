package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Sentinel says who knows the master. The zero value: the URL is that of Redis itself.
type Sentinel struct {
	Master       string // its name
	Username     string
	PasswordFile string // read again at each connect
}

// sentinels are asked for the master at each connect (Redis, "Guidelines for Redis clients with support for Redis
// Sentinel"), and every two seconds: connections to another server are closed then. One that was the master and is cut
// off from the Sentinels does not know that it is none any more, and what it takes is lost.
type sentinels struct {
	config  Sentinel
	dialer  net.Dialer
	secure  func(ctx context.Context, inner net.Conn, addr string) (net.Conn, error) // nil: no TLS
	timeout func(context.Context) (context.Context, context.CancelFunc)

	mu    sync.Mutex
	asked []redis.Options        // in this order; guarded by mu
	open  map[*connection]string // to which address; guarded by mu
}

// connection takes itself out of the list. It stays a TCP connection, so the client can tell whether it is dead.
type connection struct {
	*net.TCPConn
	closed func()
}

func (c *connection) Close() error {
	c.closed()
	return c.TCPConn.Close()
}

// newSentinels makes the options' connections go to the master.
func newSentinels(c Config, options *redis.Options) (*sentinels, error) {
	s := &sentinels{config: c.Sentinel, open: map[*connection]string{}}
	if url := options.TLSConfig; url != nil {
		s.secure = func(ctx context.Context, inner net.Conn, addr string) (net.Conn, error) {
			return c.secure(ctx, inner, addr, url)
		}
	}
	s.dialer.Timeout = c.DialTimeout
	s.timeout = func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, c.DialTimeout)
	}
	for one := range strings.SplitSeq(c.URL, ",") {
		parsed, err := redis.ParseURL(strings.TrimSpace(one))
		if err != nil {
			return nil, fmt.Errorf("read the URL of a Sentinel: %w", err)
		}
		asked := redis.Options{
			Addr: parsed.Addr, TLSConfig: options.TLSConfig, Dialer: options.Dialer, Username: c.Sentinel.Username, Protocol: 2,
			DialTimeout: c.DialTimeout, ReadTimeout: c.DialTimeout, WriteTimeout: c.DialTimeout, MaxRetries: -1,
			PoolSize:      connections, // more than one, or a failed dial leaves a goroutine that dials on for a second
			DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}
		if c.Sentinel.PasswordFile != "" {
			asked.CredentialsProviderContext = login(c.Sentinel.Username, c.Sentinel.PasswordFile,
				"the password of the Sentinels")
		}
		s.asked = append(s.asked, asked)
	}
	options.Dialer = guarded(s.dial)
	return s, nil
}

// dial connects to the master.
func (s *sentinels) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	addr, err := s.master(ctx)
	if err != nil {
		return nil, err
	}
	made, err := s.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to the master %s: %w", s.config.Master, err)
	}
	c := &connection{TCPConn: made.(*net.TCPConn)}
	c.closed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	}
	s.mu.Lock()
	s.open[c] = addr
	s.mu.Unlock()
	if s.secure == nil {
		return c, nil
	}
	return s.secure(ctx, c, addr)
}

// master is the address that the first Sentinel names that knows one. It is asked first from then on, and each has its
// share of the time: one that is silent would use up all of it, at each connect.
func (s *sentinels) master(ctx context.Context) (addr string, err error) {
	kind := sink.ConfigurationTrouble // unless one may know it that does not answer
	var errs []error
	ctx, cancel := s.timeout(ctx)
	defer cancel()
	s.mu.Lock()
	asked := slices.Clone(s.asked)
	s.mu.Unlock()
	for i, one := range asked {
		host, err := s.ask(ctx, one, len(asked)-i)
		switch {
		case err == nil && len(host) == 2:
			s.prefer(one.Addr)
			return net.JoinHostPort(host[0], host[1]), nil
		case errors.Is(err, redis.Nil):
			err = fmt.Errorf("it watches no master of this name: correct redis.sentinel.master")
		case troubleOf(err) != sink.ConfigurationTrouble:
			kind = sink.ClusterTrouble
		}
		errs = append(errs, fmt.Errorf("Sentinel %s: %w", one.Addr, err))
	}
	return "", &trouble{kind, fmt.Errorf("no Sentinel names the master %s: %w", s.config.Master, errors.Join(errs...))}
}

// prefer has the Sentinel asked first, as Redis's guidelines for clients say.
func (s *sentinels) prefer(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := slices.IndexFunc(s.asked, func(o redis.Options) bool { return o.Addr == addr })
	one := s.asked[n]
	copy(s.asked[1:], s.asked[:n])
	s.asked[0] = one
}

// ask asks one of so many that are still to be asked.
func (s *sentinels) ask(ctx context.Context, options redis.Options, left int) ([]string, error) {
	if end, ends := ctx.Deadline(); ends {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(left))
		defer cancel()
	}
	c := redis.NewSentinelClient(&options)
	defer func() { _ = c.Close() }()
	return c.GetMasterAddrByName(ctx, s.config.Master).Result()
}

// leaveOthers closes connections to servers that are not the master, as far as a Sentinel says who is.
func (s *sentinels) leaveOthers(ctx context.Context) {
	if s == nil {
		return
	}
	addr, err := s.master(ctx)
	if err != nil {
		return
	}
	s.mu.Lock()
	var others []*connection
	for c, to := range s.open {
		if to != addr {
			others = append(others, c)
		}
	}
	s.mu.Unlock()
	for _, c := range others {
		_ = c.Close()
	}
}
