package redisstream

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Defaults of [Config].
const (
	DefaultDialTimeout    = 3 * time.Second
	DefaultRequestTimeout = 10 * time.Second
)

// connections is how many requests, each of another stream, can be out at a time.
const connections = 16

// Config says where the server is. The file is read again at each connect.
type Config struct {
	URL          string // redis://user@host:port/db, rediss:// for TLS
	PasswordFile string
	// MaxLength trims streams to about so many entries, 0 = never.
	MaxLength      int64
	DialTimeout    time.Duration
	RequestTimeout time.Duration // how long the server may take for one script
	Hooks          Hooks
}

// Hooks observe. They must be quick; any may be nil.
type Hooks struct{ Alarm func(sink.Alarm) }

// client makes the client. It never repeats a command by itself: whether that is safe is known here.
func (c Config) client() (*redis.Client, error) {
	options, err := redis.ParseURL(c.URL)
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
	if c.PasswordFile != "" {
		user := options.Username
		options.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := os.ReadFile(c.PasswordFile)
			if err != nil {
				return "", "", &trouble{sink.ConfigurationTrouble, fmt.Errorf("read the password of Redis: %w", err)}
			}
			return user, string(bytes.TrimRight(password, "\r\n")), nil
		}
	}
	return redis.NewClient(options), nil
}
