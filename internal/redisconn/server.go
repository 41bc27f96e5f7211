package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/plain"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config].
const (
	defaultDialTimeout    = 3 * time.Second
	defaultRequestTimeout = 10 * time.Second
)

const (
	// connections is how many requests, each about another key, can be out at a time.
	connections = 16
	// pingPause is how often the server is asked while it is not known to be away.
	pingPause = 2 * time.Second
)

// Config says where the server is. Files are read again at each connect.
type Config struct {
	URL            string // redis://user@host:port/db, rediss:// for TLS; of Sentinels, or nodes of a cluster, with commas
	PasswordFile   string
	Sentinel       Sentinel
	Cluster        bool // the URL is that of some nodes of a cluster
	TLS            certs.Files
	MinReplicas    int    // that must have what counts as written; 0: none
	Rights         string // commands that the user must be allowed, as ACL SETUSER has them
	DialTimeout    time.Duration
	RequestTimeout time.Duration // how long the server may take for one script
}

// Server is a server of Redis, or a cluster, and what is known of it. Make it with Open.
type Server struct {
	sink.Contact
	Client redis.UniversalClient // of commands whose key is where the client looks for it; see Do

	config  Config
	cluster *redis.ClusterClient // the same as Client; nil: no cluster
	guards  *sentinels           // nil: the URL is the server's
	user    string
	ended   context.Context
	end     context.CancelFunc
	pinger  sync.WaitGroup
}

// The client has a log of its own, on stderr, of connections that it could not make; each such error comes back, too.
func init() { redis.SetLogger(&logging.VoidLogger{}) }

// Open makes a client, which connects when it is used. The server is asked every two seconds whether it is there.
func Open(c Config) (*Server, error) {
	if c.DialTimeout <= 0 {
		c.DialTimeout = defaultDialTimeout
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = defaultRequestTimeout
	}
	if c.Cluster {
		c.Rights += clusterRights
	}
	s := &Server{config: c}
	options, err := c.options()
	if err == nil {
		s.user = cmp.Or(options.Username, "default")
	}
	switch {
	case err != nil:
	case c.Cluster:
		s.cluster, err = newCluster(c, options)
		s.Client = s.cluster
	case c.Sentinel.Master != "":
		s.guards, err = newSentinels(c, options)
		fallthrough
	default:
		s.Client = redis.NewClient(options)
	}
	if err != nil {
		return nil, err
	}
	s.Client.AddHook(recovered{})
	s.ended, s.end = context.WithCancel(context.Background())
	s.pinger.Go(s.ping)
	return s, nil
}

// Close frees the connections. It may be called again.
func (s *Server) Close() error {
	s.end()
	s.pinger.Wait()
	err := s.Client.Close()
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}

// options are those of the client. It never repeats a command by itself: whether that is safe is known here.
func (c Config) options() (*redis.Options, error) {
	first, _, _ := strings.Cut(c.URL, ",")
	options, err := redis.ParseURL(strings.TrimSpace(first))
	if err != nil {
		return nil, fmt.Errorf("read the URL of Redis: %w", err)
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = c.DialTimeout, c.RequestTimeout, c.RequestTimeout
	options.ContextTimeoutEnabled = true
	options.PoolSize = connections
	options.Protocol = 2 // any server has it
	options.DisableIdentity = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if options.TLSConfig != nil {
		options.Dialer = guarded(c.dialer(options.TLSConfig))
	} else {
		options.Dialer = guarded(options.NewDialer())
	}
	if c.PasswordFile != "" {
		options.CredentialsProviderContext = login(options.Username, c.PasswordFile, "the password of Redis")
	}
	return options, nil
}

// login reads the password at each connect.
func login(user, file, what string) func(context.Context) (string, string, error) {
	return func(context.Context) (string, string, error) {
		password, err := secret.ReadFile(file)
		if err != nil {
			return "", "", &trouble{sink.ConfigurationTrouble, fmt.Errorf("read %s: %w", what, err)}
		}
		return user, password, nil
	}
}

// ping asks the server until Close.
func (s *Server) ping() {
	pause := time.NewTicker(pingPause)
	defer pause.Stop()
	for {
		ctx, cancel := context.WithTimeout(s.ended, s.config.RequestTimeout)
		if s.cluster != nil {
			s.Heard(s.pingNodes(ctx))
		} else {
			s.guards.leaveOthers(ctx)
			s.Heard(s.Client.Ping(ctx).Err())
		}
		cancel()
		select {
		case <-pause.C:
		case <-s.ended.Done():
			return
		}
	}
}

// Heard notes whether the server answered, by what came of a question.
func (s *Server) Heard(err error) {
	var said redis.Error
	if err == nil || errors.As(err, &said) && troubleOf(err) != sink.ConfigurationTrouble {
		s.Reached()
		return
	}
	s.Lost(s.withRemedy("", err))
}

// Blame makes the error say what it is about and whose it is, and notes whether the server answered. Keys are those
// that the user must be allowed, as ACL SETUSER has them.
func (s *Server) Blame(what, keys string, err error) error {
	var said redis.Error
	if s.cluster == nil || errors.As(err, &said) { // that one node is silent says nothing of the others
		s.Heard(err)
	}
	kind := s.shareOf(err)
	return &trouble{kind, fmt.Errorf("%s: %w", what, s.withRemedy(keys, err))}
}

// withRemedy says what to do about a login that Redis refuses, and about rights that the user lacks.
func (s *Server) withRemedy(keys string, err error) error {
	switch word, _, _ := refusal(err); word {
	case "WRONGPASS", "NOAUTH":
		return fmt.Errorf("%w; correct the user in redis.url and redis.password_file, or let it in: "+
			"%s on '>PASSWORD'", err, s.setUser())
	case "NOPERM":
		return fmt.Errorf("%w; the user needs: %s %s%s (ACL LOG shows the missing ones)", err, s.setUser(), keys,
			s.config.Rights)
	}
	return err
}

// setUser begins the command that changes the user: on each node of a cluster, as users are not replicated.
func (s *Server) setUser() string {
	command := "redis-cli"
	if s.cluster != nil {
		command += " --cluster call " + s.cluster.Options().Addrs[0]
	}
	return command + " ACL SETUSER " + plain.Word(s.user)
}

// Do sends a command about the key that stands at that place among its words.
func (s *Server) Do(ctx context.Context, key int8, words ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, words...)
	cmd.SetFirstKeyPos(key)
	_ = s.Client.Process(ctx, cmd) // the command has the error
	return cmd
}

// Failed fills in what became of a script that did not say that it has written.
func (s *Server) Failed(a *conditional.Answer, what, keys string, err error) {
	a.Err = s.Blame(what, keys, err)
	word, _, refused := refusal(err)
	switch {
	case refused:
		a.Verdict, a.Pause, a.Code = sink.NotWritten, true, word
	case unsent(err):
		a.Verdict, a.Pause = sink.NotWritten, true
	default:
		a.Verdict = sink.Unknown
	}
}
