package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol/createtopics"

	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

// NewTopics says what a topic that does not exist should be like, and whether the driver creates it when it is first
// asked for. One that was there and is gone was deleted by someone, and is not created again by the same driver.
type NewTopics struct {
	Create                        bool
	Partitions, ReplicationFactor int // 0: the brokers' defaults
}

// shape is the shape in a request.
func (n NewTopics) shape() (partitions int32, replicas int16) {
	return int32(cmp.Or(n.Partitions, -1)), int16(cmp.Or(n.ReplicationFactor, -1))
}

// Pauses after a topic could not be created.
const (
	firstCreatePause = time.Second
	lastCreatePause  = 30 * time.Second
)

// creation is the state of a missing topic's creation. Guarded by Driver.mu.
type creation struct {
	done  bool  // created, by us or someone else; what is left is that the brokers tell each other
	err   error // why it failed last
	pause time.Duration
	due   time.Time // not again before
}

// createLoop creates the topics that are asked for and do not exist.
func (d *Driver) createLoop() {
	timer := time.NewTimer(firstCreatePause)
	defer timer.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case <-d.create:
		case <-timer.C:
		}
		if missing := d.missing(time.Now()); len(missing) > 0 {
			d.createAll(missing)
		}
		timer.Reset(firstCreatePause)
	}
}

// missing are the topics to be created now.
func (d *Driver) missing(now time.Time) []string {
	v := d.view.Load()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.wanted), func(topic string) bool {
		c := d.creations[topic]
		return !v.topics[topic].neverSeen() || c != nil && (c.done || now.Before(c.due))
	})
}

// neverSeen reports that the brokers do not know the topic and never did while we asked.
func (t *topicView) neverSeen() bool {
	return t != nil && codes.Is(t.err, codes.UnknownTopic) && len(t.partitions) == 0
}

// IsUnknownTopic reports that err is the broker's, that there is no such topic.
func IsUnknownTopic(err error) bool { return codes.Is(err, codes.UnknownTopic) }

// IsDeniedTopic reports that err is the broker's, that our principal may not do it with the topic, or see it.
func IsDeniedTopic(err error) bool { return codes.Is(err, codes.TopicDenied) }

// IsDeniedCreation reports that err is the broker's, that our principal may not create the topic.
func IsDeniedCreation(err error) bool {
	return IsDeniedTopic(err) || codes.Is(err, codes.ClusterDenied)
}

// createAll creates topics by one request, so that the last does not wait for all before it.
func (d *Driver) createAll(topics []string) {
	partitions, replicas := d.config.NewTopics.shape()
	request := &connect.CreateTopics{}
	for _, t := range topics {
		request.Topics = append(request.Topics,
			createtopics.RequestTopic{Name: t, NumPartitions: partitions, ReplicationFactor: replicas})
	}
	answers, err := d.requestTopics(d.ctx, request)
	if d.ctx.Err() != nil {
		return
	}
	var created []string
	d.mu.Lock()
	for _, t := range topics {
		c := d.creations[t]
		if c == nil {
			c = &creation{}
			d.creations[t] = c
		}
		c.err = err
		if err == nil {
			c.err = answers[t]
		}
		switch {
		case c.err == nil:
			c.done = true
			created = append(created, t)
		case codes.Is(c.err, codes.TopicExists):
			c.done, c.err = true, nil
		default:
			c.pause = min(max(2*c.pause, firstCreatePause), lastCreatePause)
			c.due = time.Now().Add(c.pause)
		}
	}
	d.mu.Unlock()
	d.refreshSoon()
	if d.config.Hooks.TopicCreated != nil {
		for _, t := range created {
			d.config.Hooks.TopicCreated(t)
		}
	}
}

// requestTopics sends the request to the broker that the cluster names as its controller: with KRaft any broker, before
// that only one. It gives the error of each topic, nil for created.
func (d *Driver) requestTopics(ctx context.Context, request *connect.CreateTopics) (map[string]error, error) {
	c, err := d.Ping(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(c.Brokers, func(b Broker) bool { return b.ID == c.Controller })
	if at < 0 {
		return nil, codes.ErrorOf(codes.NotController, "the cluster has no controller at present")
	}
	request.TimeoutMs = int32(answerPatience / time.Millisecond)
	ctx, cancel := context.WithTimeout(ctx, d.controlTimeout()+answerPatience)
	defer cancel()
	answer, err := d.endpoint(c.Brokers[at].Address).RoundTrip(ctx, connect.Direct{Message: request})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Brokers[at].Address, err)
	}
	errs := make(map[string]error)
	for _, t := range request.Topics {
		errs[t.Name] = errors.New("the broker's response omits the topic")
	}
	for _, t := range answer.(*createtopics.Response).Topics {
		errs[t.Name] = codes.ErrorOf(t.ErrorCode, t.ErrorMessage)
	}
	return errs, nil
}

// CheckCreate asks whether the driver could create the topic, and creates nothing.
func (d *Driver) CheckCreate(ctx context.Context, topic string) error {
	partitions, replicas := d.config.NewTopics.shape()
	errs, err := d.requestTopics(ctx, &connect.CreateTopics{
		ValidateOnly: true,
		Topics:       []createtopics.RequestTopic{{Name: topic, NumPartitions: partitions, ReplicationFactor: replicas}},
	})
	if err == nil {
		err = errs[topic]
	}
	if err != nil {
		return fmt.Errorf("create topic %q: %w", topic, err)
	}
	return nil
}
