package redisconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/sink"
)

// keepPatience bounds how long replicas may take to have what was appended. What takes longer is asked for again.
const keepPatience = time.Second

// Keeps reports whether replicas must have what counts as written.
func (s *Server) Keeps() bool { return s.config.MinReplicas > 0 }

// Keep returns once as many replicas as configured have all that was written to the key before. The script looks
// whether the key is as it was, writes something to it that changes nothing, and answers 1, else 0: WAIT is about the
// writes of its own connection, and the server may be another one by now.
func (s *Server) Keep(ctx context.Context, script, key string, args ...any) error {
	one, alone := s.Client.(*redis.Client)
	if !alone {
		var err error
		if one, err = s.cluster.MasterForKey(ctx, key); err != nil {
			return err
		}
	}
	patience := min(keepPatience, s.config.RequestTimeout/2)
	pipe := one.Pipeline()
	same := pipe.Eval(ctx, script, []string{key}, args...)
	have := pipe.Do(ctx, "WAIT", s.config.MinReplicas, patience.Milliseconds())
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if is, err := same.Int(); err != nil || is == 0 {
		return errors.Join(err, errors.New("the server does not have what was appended, or it has more: it is read again"))
	}
	if n, err := have.Int(); err != nil || n < s.config.MinReplicas {
		return errors.Join(err, &trouble{sink.ClusterTrouble, fmt.Errorf(
			"%d replicas have what was appended, and redis.min_replicas is %d: the events stay unconfirmed until they do", n,
			s.config.MinReplicas)})
	}
	return nil
}
