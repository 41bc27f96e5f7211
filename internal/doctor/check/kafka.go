package check

import (
	"context"
	"fmt"
	"slices"
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
	size := examineBrokers(ctx, cfg, r)
	if size == 0 {
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
		r.add(Fail, "producer", err.Error(), "the broker must grant an idempotent producer: Write on a topic does it since "+
			"Kafka 3.0, and before: "+brokers.Kafka(cfg).GrantProducerCommand())
	} else {
		r.add(OK, "producer", "the broker grants an idempotent producer", "")
	}
	there, err := driver.TopicNames(ctx)
	j := judge{cfg: cfg, by: brokers.Kafka(cfg).Fitting(size), brokers: size, there: there}
	var events []string
	if err == nil {
		events, err = examineTopics(ctx, j, driver, r, known)
	}
	if err == nil {
		err = examineCopies(ctx, j, driver, r, copyTopics(cfg, events, known))
	}
	if err != nil {
		r.add(Fail, "topics", err.Error(), "see the error; the principal needs Describe and DescribeConfigs on the topics")
	}
}

// examineBrokers asks every broker of the configuration, side by side, and returns how many the cluster has: 0 when
// none answers.
func examineBrokers(ctx context.Context, cfg config.Config, r *Report) (size int) {
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
			size = max(size, 1, len(clusters[i].Brokers))
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
	return size
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
