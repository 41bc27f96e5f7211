package inbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
)

// inquire asks the brokers what nothing else tells: whether the topics are there, where their logs start and end, and
// who is in the group.
func (k *kafka) inquire(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		k.try(ctx, "looking for the topics", k.found)
		k.try(ctx, "asking for the bounds of the partitions", k.bounds)
		k.try(ctx, "being a member of the group", k.joined)
		k.try(ctx, "being alone in the group", k.sole)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// found returns an error that names the topics that do not exist, or why the brokers do not answer.
func (k *kafka) found(ctx context.Context) error {
	names := k.names()
	if len(names) == 0 {
		return nil
	}
	ids, err := k.topics(ctx, names)
	for topic, id := range ids {
		if assigned := k.topicID(topic); assigned != "" && assigned != id {
			k.fail(fmt.Errorf("topic %s: %w", topic, errTopic))
		}
	}
	return err
}

// names returns the topics by name; with patterns, the topics whose partitions were assigned so far.
func (k *kafka) names() []string {
	if pattern, _ := k.client.OptValue(kgo.ConsumeRegex).(bool); !pattern {
		return k.c.config.Topics
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.topicIDs))
}

// topics asks for the ids of topics: one that was created again has another.
func (k *kafka) topics(ctx context.Context, names []string) (map[string]string, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, t)
	}
	answer, err := request.RequestWith(ctx, k.client)
	if err != nil {
		return nil, fmt.Errorf("ask brokers %s for topics %s: %w", strings.Join(k.c.config.Brokers, ", "),
			strings.Join(names, ", "), err)
	}
	var failed error
	ids := map[string]string{}
	for _, t := range answer.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			failed = errors.Join(failed, fmt.Errorf("topic %s: %w", *t.Topic, err))
			continue
		}
		ids[*t.Topic] = hex.EncodeToString(t.TopicID[:])
	}
	return ids, failed
}

func (s *session) topicID(topic string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topicIDs[topic]
}

// joined returns an error while the process is not a member of its group, for longer than that takes.
func (k *kafka) joined(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refused != nil && k.refusedAt.After(k.heartbeat) {
		return k.refused
	}
	since := k.heartbeat
	if since.IsZero() {
		since = k.began
	}
	if silent := time.Since(since); silent > k.timeout {
		return fmt.Errorf("group %s has not answered for %v: are the brokers there, is the topic, may the login read the "+
			"group?", k.c.config.Group, silent.Round(time.Second))
	}
	return nil
}

// refuse notes that the group did not take this process in.
func (k *kafka) refuse(err error) {
	err = fmt.Errorf("group %s: %w", k.c.config.Group, err)
	k.mu.Lock()
	k.refused, k.refusedAt = err, time.Now()
	k.mu.Unlock()
	if !k.c.setDown("being a member of the group", err) {
		k.c.config.Log.Error("inbox: joining the group", "consumer", k.c.config.Name, "error", err)
	}
}

// Each offset that is committed to Kafka carries the consumer's name, so that two names in one group are noticed: each
// would handle only the partitions that its processes have.
const nameMark = "cdc-relay inbox "

var errShared = errors.New("the group has processes of another consumer, too, and each has only some of the events: " +
	"give each consumer a group of its own (Config.Group)")

// sole returns an error while another consumer has partitions of these topics in the group. What is seen once may be of
// the time before a rebalance.
func (k *kafka) sole(ctx context.Context) error {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = k.c.config.Group
	answer, err := request.RequestWith(ctx, k.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) || kerr.IsRetriable(err) { // no member has joined yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for the offsets of group %s: %w", k.c.config.Group, err)
	}
	mine, others, names := set(k.engine.Places()), map[lanes.Place]string{}, k.names()
	for _, t := range answer.Topics {
		if !slices.Contains(names, t.Topic) {
			continue
		}
		for _, p := range t.Partitions {
			if p.Metadata == nil {
				continue
			}
			at := lanes.Place{Topic: t.Topic, Partition: p.Partition}
			name, marked := strings.CutPrefix(*p.Metadata, nameMark)
			if marked && name != mark(k.c.config.Name) && !mine[at] {
				others[at] = name
			}
		}
	}
	before := k.others
	k.others = others
	for at, name := range others {
		if before[at] == name {
			return fmt.Errorf("topic %s, partition %d of group %s belongs to consumer %s: %w", at.Topic, at.Partition,
				k.c.config.Group, name, errShared)
		}
	}
	return nil
}

// mark shortens a consumer's name for the metadata of an offset, which a broker limits to 4,096 bytes.
func mark(name string) string {
	const most = 1000
	return name[:min(len(name), most)]
}
