package check

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka"
)

const (
	questionPatience = 10 * time.Second // for one question to one broker
	topicsShown      = 20               // topics without a finding that get a line of their own
)

// examineKafka looks at the brokers, then at the topics that events can go to: those that the rows choose, and those of
// the cluster that message.topic could name.
func examineKafka(ctx context.Context, cfg config.Config, r *Report, known chosen) {
	if !examineBrokers(ctx, cfg, r) {
		return
	}
	driver, err := kafka.New(brokers.Kafka(cfg))
	if err != nil {
		r.add(Fail, "kafka", err.Error(), "correct the kafka section of the configuration")
		return
	}
	defer func() { _ = driver.Close() }()
	bounded, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	if err := driver.CheckProducer(bounded); err != nil {
		r.add(Fail, "producer", err.Error(),
			"the broker must grant an idempotent producer: ACL IdempotentWrite on the cluster, or Write on the topics")
	} else {
		r.add(OK, "producer", "the broker grants an idempotent producer", "")
	}
	events, err := examineTopics(ctx, cfg, driver, r, known)
	if err == nil {
		err = examineCopies(ctx, cfg, driver, r, copyTopics(cfg, events, known))
	}
	if err != nil {
		r.add(Fail, "topics", err.Error(), "see the error; the principal needs Describe and DescribeConfigs on the topics")
	}
}

// examineBrokers asks every broker of the configuration, side by side. It says false when none answers.
func examineBrokers(ctx context.Context, cfg config.Config, r *Report) bool {
	answers := make([]error, len(cfg.Kafka.Brokers))
	clusters := make([]kafka.Cluster, len(cfg.Kafka.Brokers))
	var asking sync.WaitGroup
	for i, broker := range cfg.Kafka.Brokers {
		asking.Go(func() { clusters[i], answers[i] = pingBroker(ctx, cfg, broker) })
	}
	asking.Wait()
	reachable := slices.Contains(answers, nil)
	if s := cfg.Kafka.SASL; s.Mechanism == "PLAIN" && !cfg.Kafka.TLS.Enabled {
		r.add(Warn, "password", "PLAIN without TLS sends the password in plain text",
			"kafka.tls.enabled: true, or a SCRAM mechanism")
	}
	if s := cfg.Kafka.SASL; s.Mechanism == config.OAuthBearer && !cfg.Kafka.TLS.Enabled {
		r.add(Warn, "token", "OAUTHBEARER without TLS sends the token in plain text", "kafka.tls.enabled: true")
	}
	for i, broker := range cfg.Kafka.Brokers {
		switch {
		case answers[i] == nil:
			r.add(OK, "broker "+broker, fmt.Sprintf("answers%s; cluster %s has %d brokers", loginOf(cfg), clusters[i].ID,
				len(clusters[i].Brokers)), "")
		case kafka.TroubleOf(answers[i]) == sink.ConfigurationTrouble:
			r.add(Fail, "broker "+broker, answers[i].Error(),
				"fix what the error names; until then run publishes nothing there")
		case reachable:
			r.add(Warn, "broker "+broker, answers[i].Error(), "start it, or remove it from kafka.brokers; others answer")
		default:
			r.add(Fail, "broker "+broker, answers[i].Error(), "check kafka.brokers, the network and that the broker runs")
		}
	}
	return reachable
}

// loginOf says how a broker that answers was spoken with.
func loginOf(cfg config.Config) string {
	text := ""
	if cfg.Kafka.TLS.Enabled {
		text = " over TLS"
	}
	switch s := cfg.Kafka.SASL; s.Mechanism {
	case "":
	case config.OAuthBearer:
		text += " and takes the token"
	default:
		text += fmt.Sprintf(" and takes %s by %s", s.Username, s.Mechanism)
	}
	return text
}

func pingBroker(ctx context.Context, cfg config.Config, broker string) (kafka.Cluster, error) {
	c := brokers.Kafka(cfg)
	c.Brokers = []string{broker}
	driver, err := kafka.New(c)
	if err != nil {
		return kafka.Cluster{}, err
	}
	defer func() { _ = driver.Close() }()
	bounded, cancel := context.WithTimeout(ctx, questionPatience)
	defer cancel()
	return driver.Ping(bounded)
}

// examineTopics looks at the topics that events can go to, as far as they are known, and lists them.
func examineTopics(ctx context.Context, cfg config.Config, driver *kafka.Driver, r *Report,
	known chosen) (found []string, err error) {
	names, err := brokers.TopicsOf(cfg.Message.Topic)
	if err != nil {
		return nil, err
	}
	found, err = driver.TopicNames(ctx)
	if err != nil {
		return nil, err
	}
	copies := cfg.DLQ.Matcher()
	found = slices.DeleteFunc(found, func(t string) bool { return !names.Matches(t) || copies(t) })
	found = append(found, known.events...) // a broker shows a topic that we may not see to no one who does not name it
	slices.Sort(found)
	found = slices.Compact(found)
	if names.Exact == "" && len(found) == 0 && cfg.Kafka.CreateTopics.Enabled {
		r.add(OK, "topics", fmt.Sprintf("none begins with %q; each is created when its first event comes, with %s",
			names.Prefix, shapeOf(cfg)), "")
		return nil, nil
	}
	if names.Exact == "" && len(found) == 0 {
		rows := ""
		if known.known {
			rows = ", and no row chooses one yet"
		}
		r.add(Warn, "topics", fmt.Sprintf("none begins with %q, or we may see none%s; events wait until theirs exists",
			names.Prefix, rows),
			fmt.Sprintf("create one for each value of %s, such as: %s; or set kafka.create_topics.enabled; where they "+
				"exist: %s", placeholdersOf(cfg.Message.Topic), brokers.Kafka(cfg).Command(names.Prefix+"VALUE"),
				brokers.Kafka(cfg).GrantCommand(names.Prefix+" --resource-pattern-type prefixed", principalOf(cfg))))
		return nil, nil
	}
	if names.Exact != "" {
		found = []string{names.Exact}
	}
	return found, addTopics(ctx, driver, r, "topic", found, func(t kafka.Topic) (l Level, text, fix string) {
		if kafka.IsUnknownTopic(t.Err) && cfg.Kafka.CreateTopics.Enabled {
			return examineCreation(ctx, cfg, driver, t.Name)
		}
		return judgeTopic(t, cfg)
	})
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

// examineCreation asks the brokers whether run could create the topic.
func examineCreation(ctx context.Context, cfg config.Config, driver *kafka.Driver,
	topic string) (l Level, text, fix string) {
	err := driver.CheckCreate(ctx, topic)
	switch by := brokers.Kafka(cfg); {
	case kafka.IsDeniedCreation(err):
		return Fail, fmt.Sprintf("it does not exist, and the principal %s may not create it; its events are parked",
			principalOf(cfg)), by.GrantCreateCommand(topic, principalOf(cfg))
	case err != nil:
		return Fail, "it does not exist, and could not be created: " + err.Error(),
			"correct kafka.create_topics, or by hand: " + by.Command(topic)
	}
	return OK, "it does not exist; run creates it with " + shapeOf(cfg), ""
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

// principalOf is who the brokers take us for, as far as the configuration tells.
func principalOf(cfg config.Config) string {
	if u := cfg.Kafka.SASL.Username; u != "" {
		return u
	}
	return "<ours>"
}

// judgeMissing says why a topic cannot be used at all.
func judgeMissing(t kafka.Topic, cfg config.Config) (l Level, text, fix string) {
	illegal := config.IllegalTopic(t.Name)
	switch {
	case illegal != "":
		return Warn, "such a name " + illegal + "; events that choose it become dead letters",
			"correct the rows' values, or message.topic"
	case kafka.IsDeniedTopic(t.Err):
		return Fail, fmt.Sprintf("the principal %s may not see it, so whether it exists is not known; its events are parked",
			principalOf(cfg)), brokers.Kafka(cfg).GrantCommand(t.Name, principalOf(cfg))
	case kafka.IsUnknownTopic(t.Err):
		return Fail, "it does not exist; its events are parked",
			brokers.Kafka(cfg).Command(t.Name) + "; or set kafka.create_topics.enabled"
	}
	return Fail, t.Err.Error(), "see the error; it may be temporary"
}

// judgeTimes reports what the topic does to records whose time is not that of their publication; OK: nothing.
func judgeTimes(t kafka.Topic, cfg config.Config, text, alter string) (l Level, said, fix string) {
	switch {
	case refusesOld(t, cfg):
		return Warn, text + fmt.Sprintf(": it refuses messages older than %v, and message.timestamp is created_at: an "+
				"event that waits longer, in an outage or in a catch-up, would become a dead letter", t.OldestMessage),
			"message.timestamp: publish, or " + alter + "message.timestamp.type=LogAppendTime"
	case cfg.Message.Timestamp == config.TimestampCreatedAt && t.TimestampType != logAppendTime && t.Retention > 0:
		return Warn, text + fmt.Sprintf(": it keeps records for %v (retention.ms) from their time, and message.timestamp is "+
				"created_at: an event that waits longer, in an outage or in a catch-up, is deleted minutes after it was "+
				"published", t.Retention),
			"message.timestamp: publish, or " + alter + "message.timestamp.type=LogAppendTime, or a longer retention.ms"
	case t.TimestampType != logAppendTime && t.NewestMessage > 0 && t.NewestMessage < leastAhead:
		return Warn, text + fmt.Sprintf(": it refuses messages whose time is more than %v ahead of the broker's clock",
				t.NewestMessage),
			alter + fmt.Sprintf("message.timestamp.after.max.ms=%d, or keep the clocks that close", time.Hour.Milliseconds())
	}
	return OK, "", ""
}

// judgeTopic is the worst that is to be said of a topic.
func judgeTopic(t kafka.Topic, cfg config.Config) (l Level, text, fix string) {
	alter := "kafka-configs.sh --alter --entity-type topics --entity-name " + t.Name + " --add-config "
	if t.Err != nil {
		return judgeMissing(t, cfg)
	}
	replicas := t.ReplicationFactor()
	text = fmt.Sprintf("%d partitions, %d replicas, min.insync.replicas %d, max.message.bytes %d, cleanup.policy %s",
		len(t.Partitions), replicas, t.MinInSyncReplicas, t.MaxMessageBytes, t.CleanupPolicy)
	if t.Writable == kafka.Denied {
		return Fail, "we may not write to it",
			brokers.Kafka(cfg).GrantCommand(t.Name, principalOf(cfg))
	}
	if t.ConfigErr != nil {
		text = fmt.Sprintf("%d partitions, %d replicas; its configuration cannot be read: %v", len(t.Partitions), replicas,
			t.ConfigErr)
		return Warn, text, "grant DescribeConfigs on it"
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
			alter + fmt.Sprintf("min.insync.replicas=%d, or add replicas", replicas)
	case len(short) > 0:
		return Fail, text + "; fewer replicas in sync than that for partition " + strings.Join(short, ", "),
			"start the brokers that hold its replicas"
	}
	if level, said, fix := judgeTimes(t, cfg, text, alter); level != OK {
		return level, said, fix
	}
	switch {
	case t.Compacted():
		return Warn, text + ": only the last message of a key is kept, and a message without a key is refused",
			alter + "cleanup.policy=delete, unless that is what consumers want"
	case cfg.Limits.MaxEventBytes > 0 && cfg.Limits.MaxEventBytes < config.DefaultMaxEventBytes &&
		t.MaxMessageBytes > 0 && t.MaxMessageBytes < int(cfg.Limits.MaxEventBytes):
		return Warn, text + fmt.Sprintf(": smaller than limits.max_event_bytes %s", cfg.Limits.MaxEventBytes),
			alter + fmt.Sprintf("max.message.bytes=%d, or lower limits.max_event_bytes", int(cfg.Limits.MaxEventBytes))
	case replicas == 1:
		return Warn, text + ": one broker holds the only copy",
			"create it with --replication-factor 3 where the cluster has the brokers"
	case t.MinInSyncReplicas < 2:
		return Warn, text + ": writes are acknowledged by a single broker", alter + "min.insync.replicas=2"
	}
	return OK, text, ""
}
