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
func (s *session) inquire(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		s.try(ctx, "looking for the topics", s.found)
		s.try(ctx, "asking for the bounds of the partitions", s.bounds)
		s.try(ctx, "being a member of the group", s.joined)
		s.try(ctx, "being alone in the group", s.sole)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// found returns an error that names the topics that do not exist, or why the brokers do not answer.
func (s *session) found(ctx context.Context) error {
	names := s.names()
	if len(names) == 0 {
		return nil
	}
	ids, err := s.topics(ctx, names)
	for topic, id := range ids {
		if assigned := s.topicID(topic); assigned != "" && assigned != id {
			s.fail(fmt.Errorf("topic %s: %w", topic, errTopic))
		}
	}
	return err
}

// names are the topics by name: where the client takes them as patterns, those of which it has had partitions.
func (s *session) names() []string {
	if pattern, _ := s.client.OptValue(kgo.ConsumeRegex).(bool); !pattern {
		return s.c.config.Topics
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.topicIDs))
}

// topics asks for the ids of topics: one that was created again has another.
func (s *session) topics(ctx context.Context, names []string) (map[string]string, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		request.Topics = append(request.Topics, t)
	}
	answer, err := request.RequestWith(ctx, s.client)
	if err != nil {
		return nil, fmt.Errorf("ask brokers %s for topics %s: %w", strings.Join(s.c.config.Brokers, ", "),
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
func (s *session) joined(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != nil && s.refusedAt.After(s.heartbeat) {
		return s.refused
	}
	since := s.heartbeat
	if since.IsZero() {
		since = s.began
	}
	if silent := time.Since(since); silent > s.timeout {
		return fmt.Errorf("group %s has not answered for %v: are the brokers there, is the topic, may the login read the "+
			"group?", s.c.config.Group, silent.Round(time.Second))
	}
	return nil
}

// refuse notes that the group did not take this process in.
func (s *session) refuse(err error) {
	err = fmt.Errorf("group %s: %w", s.c.config.Group, err)
	s.mu.Lock()
	s.refused, s.refusedAt = err, time.Now()
	s.mu.Unlock()
	if !s.c.setDown("being a member of the group", err) {
		s.c.config.Log.Error("inbox: joining the group", "consumer", s.c.config.Name, "error", err)
	}
}

// Each offset that is committed to Kafka carries the consumer's name, so that two names in one group are noticed: each
// would handle only the partitions that its processes have.
const nameMark = "cdc-relay inbox "

var errShared = errors.New("the group has processes of another consumer, too, and each has only some of the events: " +
	"give each consumer a group of its own (Config.Group)")

// sole returns an error while another consumer has partitions of these topics in the group. What is seen once may be of
// the time before a rebalance.
func (s *session) sole(ctx context.Context) error {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = s.c.config.Group
	answer, err := request.RequestWith(ctx, s.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if errors.Is(err, kerr.GroupIDNotFound) || kerr.IsRetriable(err) { // no member has joined yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for the offsets of group %s: %w", s.c.config.Group, err)
	}
	mine, others, names := set(s.engine.Places()), map[lanes.Place]string{}, s.names()
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
			if marked && name != mark(s.c.config.Name) && !mine[at] {
				others[at] = name
			}
		}
	}
	before := s.others
	s.others = others
	for at, name := range others {
		if before[at] == name {
			return fmt.Errorf("topic %s, partition %d of group %s belongs to consumer %s: %w", at.Topic, at.Partition,
				s.c.config.Group, name, errShared)
		}
	}
	return nil
}

// mark is a consumer's name as it fits into the metadata of an offset, of which a broker takes 4,096 bytes.
func mark(name string) string {
	const most = 1000
	return name[:min(len(name), most)]
}
