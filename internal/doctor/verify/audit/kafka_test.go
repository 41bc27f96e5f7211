package audit

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/config"
)

// asAlice asks a fake broker with the topics "seen" and "hidden"; alice may describe and read "seen" and "absent".
func asAlice(t *testing.T) (onKafka, *kfake.Cluster) {
	t.Helper()
	var granted []kfake.ACL
	for _, topic := range []string{"seen", "absent"} {
		for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationDescribe, kmsg.ACLOperationRead} {
			granted = append(granted, kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic,
				Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: operation, Allow: true})
		}
	}
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "alice", "secret", granted...), kfake.SeedTopics(3, "seen", "hidden"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	cfg := config.Default()
	cfg.Kafka.Brokers, cfg.Kafka.SASL.Mechanism, cfg.Kafka.SASL.Username = broker.ListenAddrs(), "PLAIN", "alice"
	cfg.Kafka.SASL.PasswordCommand = []string{"echo", "secret"}
	k, err := newOnKafka(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	return k, broker
}

// Breaks it catches: a topic that the principal may not see taken for one that is not there, so that all of its events
// are lost, and a repair doubles them. Seen to fail with the client's own Metadata: no error.
func TestATopicThatMayNotBeSeenIsAnError(t *testing.T) {
	k, _ := asAlice(t)
	k.settled = time.Now()
	found, err := k.find(t.Context(), "hidden")
	if !errors.Is(err, kafkago.TopicAuthorizationFailed) ||
		!strings.Contains(err.Error(), "grant the principal Describe") {
		t.Errorf("hidden: got %d partitions and %v, want an error that says what to grant", len(found.ends), err)
	}
	if found, err := k.find(t.Context(), "seen"); err != nil || len(found.ends) != 3 {
		t.Errorf("seen: got %d partitions and %v, want 3", len(found.ends), err)
	}
	if found, err := k.find(t.Context(), "absent"); err != nil || len(found.ends) != 0 {
		t.Errorf("absent: got %d partitions and %v, want none", len(found.ends), err)
	}
}

// Breaks it catches: a broker that has not heard of a topic yet believed at once; a topic that is not there waited for
// without an end. Seen to fail with the first answer believed.
func TestABrokerThatLagsBehindMakesNoTopicAbsent(t *testing.T) {
	k, broker := asAlice(t)
	var lags atomic.Int32
	broker.ControlKey(int16(kmsg.Metadata), func(q kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked := q.(*kmsg.MetadataRequest)
		if len(asked.Topics) != 1 || lags.Add(1) > 2 {
			return nil, nil, false
		}
		answer := asked.ResponseKind().(*kmsg.MetadataResponse)
		answer.Topics = []kmsg.MetadataResponseTopic{{Topic: asked.Topics[0].Topic,
			ErrorCode: int16(kafkago.UnknownTopicOrPartition)}}
		return answer, nil, true
	})
	if found, err := k.find(t.Context(), "seen"); err != nil || len(found.ends) != 3 || lags.Load() < 3 {
		t.Errorf("got %d partitions and %v after %d questions, want 3", len(found.ends), err, lags.Load())
	}
	lags.Store(-1 << 30)
	k.settled = time.Now().Add(2 * lookAgain)
	if found, err := k.find(t.Context(), "seen"); err != nil || len(found.ends) != 0 || time.Now().Before(k.settled) {
		t.Errorf("for good: got %d partitions and %v, want none after a while", len(found.ends), err)
	}
}
