package inbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unknownTimeout is assumed of a group whose session's time is the broker's (KIP-848), until the broker has said it.
const unknownTimeout = 20 * time.Second

// learnTimeout takes the session's time from the client. With the newer protocol it is the broker's: see askTimeout.
func (k *kafka) learnTimeout() {
	timeout, _ := k.client.OptValue(kgo.SessionTimeout).(time.Duration)
	if k.c.config.ConsumerProtocol {
		timeout = unknownTimeout
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timeout = timeout
}

// askTimeout asks the broker for the session's time of the group.
func (k *kafka) askTimeout(ctx context.Context) {
	if !k.c.config.ConsumerProtocol {
		return
	}
	timeout, err := k.groupTimeout(ctx)
	if err != nil {
		k.c.config.Log.Debug("inbox: the session timeout of the group is unknown", "consumer", k.c.config.Name,
			"assumed", unknownTimeout, "error", err)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timeout = timeout
}

// groupTimeout asks for the group's setting, whose default is the broker's.
func (k *kafka) groupTimeout(ctx context.Context) (time.Duration, error) {
	const name = "consumer.session.timeout.ms"
	request := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, k.c.config.Group
	resource.ConfigNames = []string{name}
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, k.client)
	if err != nil {
		return 0, err
	}
	for _, resource := range answer.Resources {
		if err := kerr.ErrorForCode(resource.ErrorCode); err != nil {
			return 0, err
		}
		for _, c := range resource.Configs {
			if c.Name == name && c.Value != nil {
				ms, err := strconv.Atoi(*c.Value)
				return time.Duration(ms) * time.Millisecond, err
			}
		}
	}
	return 0, fmt.Errorf("the broker names no %s", name)
}

// answered notes that the group's coordinator has answered a request that was sent then. Behind a silence that was
// longer than the session's time, the answer to a heartbeat may be that the membership is over: the next one tells.
func (k *kafka) answered(key int16, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch key {
	case int16(kmsg.SyncGroup):
		k.doubtful = false
	case int16(kmsg.Heartbeat), int16(kmsg.ConsumerGroupHeartbeat):
		silent := !k.heartbeat.IsZero() && sent.Sub(k.heartbeat) > k.timeout
		if k.doubtful = silent && !k.doubtful; k.doubtful {
			return
		}
	default:
		return
	}
	k.heartbeat = sent
}

type sessionKey struct{}

// Fresh reports whether this process most likely still owns the handler's event: the group's coordinator answered a
// heartbeat that was sent within half of the session timeout. Use it before effects outside the database, which the
// event's row does not fence.
func Fresh(ctx context.Context) bool {
	s, _ := ctx.Value(sessionKey{}).(*session)
	if s == nil || ctx.Err() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heartbeat) < s.timeout/2
}
