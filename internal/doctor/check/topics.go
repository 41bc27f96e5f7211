package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

// judge says what is wrong with topics, and what fixes it on this cluster.
type judge struct {
	cfg     config.Config
	by      kafka.Config // makes the commands
	brokers int          // of the cluster
	there   []string     // the cluster's topics that we may see
}

// examineTopics looks at the topics that events can go to, as far as they are known, and lists them.
func examineTopics(ctx context.Context, j judge, driver *kafka.Driver, r *Report,
	known chosen) (found []string, err error) {
	cfg := j.cfg
	names, err := brokers.TopicsOf(cfg.Message.Topic)
	if err != nil {
		return nil, err
	}
	copies := cfg.DLQ.Matcher()
	if names.Prefix != "" { // without one, a topic that no row names has nothing to do with us
		found = slices.DeleteFunc(slices.Clone(j.there), func(t string) bool { return !names.Matches(t) || copies(t) })
	}
	found = append(found, known.events...) // a broker shows a topic that we may not see to no one who does not name it
	slices.Sort(found)
	found = slices.Compact(found)
	if names.Exact == "" && len(found) == 0 {
		j.addNone(r, names.Prefix, known.known)
		return nil, nil
	}
	if names.Exact != "" {
		found = []string{names.Exact}
	}
	return found, addTopics(ctx, driver, r, "topic", found, func(t kafka.Topic) (l Level, text, fix string) {
		if kafka.IsUnknownTopic(t.Err) && cfg.Kafka.CreateTopics.Enabled {
			return j.creation(ctx, driver, t.Name)
		}
		return j.topic(t)
	})
}

// addNone reports that no topic is known to which an event can go.
func (j judge) addNone(r *Report, prefix string, rowsRead bool) {
	which := fmt.Sprintf("none begins with %q", prefix)
	if prefix == "" {
		which = "message.topic " + j.cfg.Message.Topic + " can name any topic"
	}
	rows := ""
	if rowsRead {
		rows = ", and no row chooses one yet"
	}
	if j.cfg.Kafka.CreateTopics.Enabled {
		r.add(OK, "topics", fmt.Sprintf("%s%s; each is created when its first event comes, with %s", which, rows,
			shapeOf(j.cfg)), "")
		return
	}
	r.add(Warn, "topics", which+", or we may see none"+rows+"; events wait until theirs exists",
		fmt.Sprintf("create one for each value of %s, such as: %s; or set kafka.create_topics.enabled; where they exist: %s",
			placeholdersOf(j.cfg.Message.Topic), j.by.Command(prefix+"VALUE"), j.by.GrantCommand(prefix+"*")))
}

// addTopics reports on topics, on topicsShown of those without a finding.
func addTopics(ctx context.Context, driver *kafka.Driver, r *Report, what string, names []string,
	judge func(kafka.Topic) (l Level, text, fix string)) error {
	topics, err := driver.Topics(ctx, names)
	if err != nil {
		return err
	}
	good := 0
	for _, t := range topics {
		l, text, fix := judge(t)
		if l == OK {
			if good++; good > topicsShown {
				continue
			}
		}
		r.add(l, what+" "+t.Name, text, fix)
	}
	if good > topicsShown {
		r.add(OK, what+"s", fmt.Sprintf("%d more without a finding", good-topicsShown), "")
	}
	return nil
}

// creation asks the brokers whether run could create the topic.
func (j judge) creation(ctx context.Context, driver *kafka.Driver, topic string) (l Level, text, fix string) {
	err := driver.CheckCreate(ctx, topic)
	switch other := kafka.Collides(topic, j.there); {
	case kafka.IsDeniedCreation(err):
		return Fail, fmt.Sprintf("it does not exist, and the principal %s may not create it; its events are parked",
			j.by.Principal()), j.by.GrantCreateCommand(topic)
	case other != "":
		return collision(other)
	case err != nil:
		return Fail, "it does not exist, and could not be created: " + err.Error(),
			"correct kafka.create_topics; or by hand: " + j.by.Command(topic)
	}
	return OK, "it does not exist; run creates it with " + shapeOf(j.cfg), ""
}

func shapeOf(cfg config.Config) string {
	return fmt.Sprintf("%d partitions and %d replicas", cfg.Kafka.CreateTopics.Partitions,
		cfg.Kafka.CreateTopics.ReplicationFactor)
}

const (
	logAppendTime = "LogAppendTime"
	// leastAhead is how far the clocks of applications, ours and the brokers' may lie apart without anybody noticing.
	leastAhead = 5 * time.Minute
)

// refusesOld reports whether the topic would refuse events for their age.
func refusesOld(t kafka.Topic, cfg config.Config) bool {
	return cfg.Message.Timestamp == config.TimestampCreatedAt && t.TimestampType != logAppendTime && t.OldestMessage > 0
}

// placeholdersOf are the columns that a template names.
func placeholdersOf(template string) string {
	parts, _ := config.ParseTemplate(template) // it was read before
	var columns []string
	for _, p := range parts {
		if p.Column != "" {
			columns = append(columns, p.Column)
		}
	}
	return strings.Join(columns, " and ")
}

// collision reports a missing topic that Kafka does not create beside that other one.
func collision(other string) (l Level, text, fix string) {
	return Fail, "it does not exist, and Kafka does not create it beside topic " + other +
			": it takes . and _ in names for the same; its events are parked",
		"change message.topic, or the rows' values, so that the names differ"
}

// missing says why a topic cannot be used at all.
func (j judge) missing(t kafka.Topic) (l Level, text, fix string) {
	illegal, other := config.IllegalTopic(t.Name), kafka.Collides(t.Name, j.there)
	switch {
	case illegal != "":
		return Warn, "such a name " + illegal + "; events that choose it become dead letters",
			"correct the rows' values, or message.topic"
	case kafka.IsDeniedTopic(t.Err):
		return Fail, fmt.Sprintf("the principal %s may not see it, so whether it exists is not known; its events are parked",
			j.by.Principal()), j.by.GrantCommand(t.Name)
	case kafka.IsUnknownTopic(t.Err) && other != "":
		return collision(other)
	case kafka.IsUnknownTopic(t.Err):
		return Fail, "it does not exist; its events are parked",
			j.by.Command(t.Name) + "; or set kafka.create_topics.enabled"
	}
	return Fail, t.Err.Error(), "see the error; it may be temporary"
}

// times reports what the topic does to records whose time is not that of their publication; OK: nothing.
func (j judge) times(t kafka.Topic, text string) (l Level, said, fix string) {
	cfg := j.cfg
	byArrival := "message.timestamp: publish; or " + j.by.AlterCommand(t.Name, "message.timestamp.type=LogAppendTime")
	switch {
	case refusesOld(t, cfg):
		return Warn, text + fmt.Sprintf(": it refuses messages older than %v, and message.timestamp is created_at: an "+
				"event that waits longer, in an outage or in a catch-up, would become a dead letter", t.OldestMessage),
			byArrival
	case cfg.Message.Timestamp == config.TimestampCreatedAt && t.TimestampType != logAppendTime && t.Retention > 0:
		return Warn, text + fmt.Sprintf(": it keeps records for %v (retention.ms) from their time, and message.timestamp is "+
				"created_at: an event that waits longer, in an outage or in a catch-up, is deleted minutes after it was "+
				"published", t.Retention),
			byArrival + "; or a longer retention.ms"
	case t.TimestampType != logAppendTime && t.NewestMessage > 0 && t.NewestMessage < leastAhead:
		return Warn, text + fmt.Sprintf(": it refuses messages whose time is more than %v ahead of the broker's clock",
				t.NewestMessage),
			j.by.AlterCommand(t.Name, fmt.Sprintf("message.timestamp.after.max.ms=%d", time.Hour.Milliseconds())) +
				"; or keep the clocks that close"
	}
	return OK, "", ""
}

// topic is the worst that is to be said of a topic.
func (j judge) topic(t kafka.Topic) (l Level, text, fix string) {
	if t.Err != nil {
		return j.missing(t)
	}
	replicas := t.ReplicationFactor()
	shape := fmt.Sprintf("%d partitions, %d replicas", len(t.Partitions), replicas)
	text = fmt.Sprintf("%s, min.insync.replicas %d, max.message.bytes %d, cleanup.policy %s", shape, t.MinInSyncReplicas,
		t.MaxMessageBytes, t.CleanupPolicy)
	if t.Writable == kafka.Denied {
		return Fail, fmt.Sprintf("we may not write to it: the principal %s lacks Write; its events are parked",
			j.by.Principal()), j.by.GrantCommand(t.Name)
	}
	if t.ConfigErr != nil {
		return Warn, fmt.Sprintf("%s; its configuration cannot be read: %v", shape, t.ConfigErr), j.by.GrantCommand(t.Name)
	}
	var leaderless, short []string
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			leaderless = append(leaderless, strconv.Itoa(int(p.ID)))
		} else if len(p.InSync) < t.MinInSyncReplicas {
			short = append(short, strconv.Itoa(int(p.ID)))
		}
	}
	switch {
	case len(leaderless) > 0:
		return Fail, text + "; no leader for partition " + strings.Join(leaderless, ", "),
			"start the brokers that hold its replicas"
	case replicas < t.MinInSyncReplicas:
		return Fail, text + ": no write can ever be acknowledged",
			j.by.AlterCommand(t.Name, fmt.Sprintf("min.insync.replicas=%d", replicas)) + "; or add replicas"
	case len(short) > 0:
		return Fail, text + "; fewer replicas in sync than that for partition " + strings.Join(short, ", "),
			"start the brokers that hold its replicas"
	}
	if t.Readable == kafka.Denied {
		return Warn, fmt.Sprintf("%s: the principal %s lacks Read, so what it holds cannot be read back after a crash: "+
			"up to %d events (limits.max_unrecorded) may come twice then, and verify cannot read it", text,
			j.by.Principal(), j.cfg.Limits.MaxUnrecorded), j.by.GrantCommand(t.Name)
	}
	if level, said, fix := j.times(t, text); level != OK {
		return level, said, fix
	}
	return j.risks(t, text)
}

// risks reports what else the topic's settings put at risk; OK: nothing.
func (j judge) risks(t kafka.Topic, text string) (l Level, said, fix string) {
	largest := j.cfg.Limits.MaxEventBytes
	switch {
	case t.Compacted():
		return Warn, text + ": only the last message of a key is kept, and a message without a key is refused",
			j.by.AlterCommand(t.Name, "cleanup.policy=delete") + "; unless that is what consumers want"
	case largest > 0 && largest < config.DefaultMaxEventBytes && t.MaxMessageBytes > 0 &&
		t.MaxMessageBytes < int(largest):
		return Warn, text + fmt.Sprintf(": smaller than limits.max_event_bytes %s", largest),
			j.by.AlterCommand(t.Name, fmt.Sprintf("max.message.bytes=%d", int(largest))) + "; or lower limits.max_event_bytes"
	case t.ReplicationFactor() == 1 && j.brokers == 1:
		return Warn, text + ": one broker holds the only copy",
			"the cluster has one broker: if it loses its disk, published events are lost; production wants three"
	case t.ReplicationFactor() == 1:
		return Warn, text + ": one broker holds the only copy",
			fmt.Sprintf("give it more replicas (kafka-reassign-partitions.sh): the cluster has %d brokers", j.brokers)
	case t.MinInSyncReplicas < 2:
		return Warn, text + ": writes are acknowledged by a single broker",
			j.by.AlterCommand(t.Name, "min.insync.replicas=2")
	}
	return OK, text, ""
}
