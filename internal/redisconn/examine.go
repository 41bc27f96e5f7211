package redisconn

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Examine connects and asks how durable the server is. The text says what was found, with what can be lost; a server
// that does not let itself be asked (ACL, some hosted ones) is taken as it is. Risky says that something can be lost,
// or that it is not known.
func (s *Server) Examine(ctx context.Context) (text string, risky bool, err error) {
	one, alone := s.Client.(*redis.Client)
	if !alone {
		return s.examineNodes(ctx)
	}
	if info, err := one.Info(ctx, "cluster").Result(); err == nil && strings.Contains(info, "cluster_enabled:1") {
		return "", false, fmt.Errorf("the server is a node of a cluster, and holds a part of the keys: set " +
			"redis.cluster.enabled")
	}
	return s.examine(ctx, one)
}

// examine examines one server.
func (s *Server) examine(ctx context.Context, one *redis.Client) (text string, risky bool, err error) {
	if err := one.Ping(ctx).Err(); err != nil {
		return "", false, &trouble{troubleOf(err), fmt.Errorf("ask Redis: %w", s.withRemedy("", err))}
	}
	settings := map[string]string{}
	for _, name := range []string{"appendonly", "appendfsync", "maxmemory-policy"} {
		values, err := one.ConfigGet(ctx, name).Result()
		if err != nil {
			//nolint:nilerr // a server that hides its settings is taken as it is
			return "the server answers; it does not show appendonly, appendfsync and maxmemory-policy: see to them", true, nil
		}
		settings[name] = values[name]
	}
	risks := s.tooFewReplicas(ctx, one)
	switch {
	case settings["appendonly"] != "yes":
		risks = append(risks,
			"appendonly is off: a restart loses what was acknowledged since the last snapshot; set appendonly yes")
	case settings["appendfsync"] != "always":
		risks = append(risks, fmt.Sprintf("appendfsync is %s: a crash can lose the last two seconds that were acknowledged",
			settings["appendfsync"]))
	}
	if policy := settings["maxmemory-policy"]; policy != "noeviction" && !strings.HasPrefix(policy, "volatile-") {
		risks = append(risks, fmt.Sprintf("maxmemory-policy %s may evict what was sent; set noeviction", policy))
	}
	if s.guards != nil || s.cluster != nil {
		// Some hosted servers hide it: nothing is said then.
		const name = "min-replicas-to-write"
		if values, err := one.ConfigGet(ctx, name).Result(); err == nil && values[name] == "0" {
			risks = append(risks, "min-replicas-to-write is 0: a master that is cut off from its replicas goes on "+
				"acknowledging what a failover loses; set min-replicas-to-write 1 and min-replicas-max-lag 10 on each server")
		}
	}
	if len(risks) == 0 {
		return "the server answers; appendfsync is always", false, nil
	}
	return "the server answers; " + strings.Join(risks, "; "), true, nil
}

// tooFewReplicas warns that nothing would count as written. A server that hides its replicas is taken as it is.
func (s *Server) tooFewReplicas(ctx context.Context, one *redis.Client) (risks []string) {
	info, err := one.Info(ctx, "replication").Result()
	if err != nil || !s.Keeps() {
		return nil
	}
	online := strings.Count(info, "state=online")
	if online < s.config.MinReplicas {
		risks = append(risks, fmt.Sprintf("it has %d replicas, and redis.min_replicas is %d: no event counts as published "+
			"before it has as many", online, s.config.MinReplicas))
	}
	return risks
}
