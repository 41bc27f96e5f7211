package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink"
)

// redirections is how often a command is sent on to where a node points to (MOVED, ASK).
const redirections = 4

// clusterRights are the ACL rules that the user needs beside those of one server: to learn who has which slot, for
// check, and to be redirected.
const clusterRights = ` '+cluster|slots' '+cluster|info' +asking`

// newCluster returns a client of a cluster; the URL names some of its nodes. It tracks which node has which slot,
// follows where nodes point to, and repeats nothing by itself.
func newCluster(c Config, one *redis.Options) (*redis.ClusterClient, error) {
	options := &redis.ClusterOptions{
		MaxRedirects: redirections, MaxRetries: -1, DialerRetries: 1,
		DialTimeout: one.DialTimeout, ReadTimeout: one.ReadTimeout, WriteTimeout: one.WriteTimeout,
		ContextTimeoutEnabled: true, PoolSize: one.PoolSize, Protocol: one.Protocol,
		Username: one.Username, Password: one.Password, CredentialsProviderContext: one.CredentialsProviderContext,
		DisableIdentity: true, DisableRoutingPolicies: true, MaintNotificationsConfig: one.MaintNotificationsConfig,
	}
	options.TLSConfig, options.Dialer = one.TLSConfig, one.Dialer
	for node := range strings.SplitSeq(c.URL, ",") {
		parsed, err := redis.ParseURL(strings.TrimSpace(node))
		if err != nil {
			return nil, fmt.Errorf("read the URL of a node of the cluster: %w", err)
		}
		options.Addrs = append(options.Addrs, parsed.Addr)
	}
	cluster := redis.NewClusterClient(options)
	cluster.AddHook(followed{cluster, c.RequestTimeout})
	return cluster, nil
}

// followed bounds a command with all its redirections, and has the cluster asked for its slots again when one fails.
type followed struct {
	cluster *redis.ClusterClient
	timeout time.Duration
}

func (f followed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f followed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f followed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		err := next(ctx, once{cmd})
		var said redis.Error
		if err != nil && !errors.As(err, &said) {
			f.cluster.ReloadState(ctx)
		}
		return err
	}
}

// once is a command that the client does not repeat where the first attempt may have been carried out: the second one's
// failure would be taken for that of both.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

// pingNodes asks each master whether it is there. One that answers is enough: the others are the trouble of the keys
// that they have.
func (s *Server) pingNodes(ctx context.Context) error {
	s.cluster.ReloadState(ctx) // a master that is frozen points to no one
	ctx, cancel := context.WithTimeout(ctx, s.config.DialTimeout)
	defer cancel()
	var answered atomic.Bool
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		err := node.Ping(ctx).Err()
		if err == nil {
			answered.Store(true)
		}
		return err
	})
	if answered.Load() {
		return nil
	}
	return err
}

// shareOf narrows the cluster's trouble to that of the key's partition, while other nodes answer and do not say that
// the cluster is down.
func (s *Server) shareOf(err error) sink.Trouble {
	kind := troubleOf(err)
	if s.cluster == nil || kind != sink.ClusterTrouble || strings.HasPrefix(err.Error(), "CLUSTERDOWN The cluster") {
		return kind
	}
	if _, err := s.Unreachable(); err != nil {
		return kind
	}
	return sink.PartitionTrouble
}

// examineNodes examines each master, and says of all of them what was found of the first that can lose something.
func (s *Server) examineNodes(ctx context.Context) (text string, risky bool, err error) {
	info, err := s.cluster.ClusterInfo(ctx).Result()
	if err != nil {
		return "", false, fmt.Errorf("ask the cluster: %w", s.withRemedy("", err))
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return "", false, fmt.Errorf("the cluster reports problems: see redis-cli --cluster check %s",
			s.cluster.Options().Addrs[0])
	}
	found := make(chan string, 1)
	masters := atomic.Int64{}
	err = s.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		masters.Add(1)
		text, risky, err := s.examine(ctx, node)
		if err != nil {
			return fmt.Errorf("node %s: %w", node.Options().Addr, err)
		}
		if risky {
			select {
			case found <- "node " + node.Options().Addr + ": " + text:
			default: // one is enough
			}
		}
		return nil
	})
	if err != nil {
		return "", false, err
	}
	select {
	case text = <-found:
		return text, true, nil
	default:
		return fmt.Sprintf("all %d masters of the cluster answer; appendfsync is always", masters.Load()), false, nil
	}
}
