package kafka

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// BrokerError is an error that a broker answered.
type BrokerError struct {
	Code    int16
	Name    string // as in org.apache.kafka.common.protocol.Errors
	Message string // the broker's own words, often empty
}

// Error names the code and quotes the broker.
func (e *BrokerError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s (%d)", e.Name, e.Code)
	}
	return fmt.Sprintf("%s (%d): %s", e.Name, e.Code, e.Message)
}

// errorOf is the error of a code, nil for 0.
func errorOf(code int16, message string) error {
	if code == 0 {
		return nil
	}
	return &BrokerError{Code: code, Name: meaningOf(code).name, Message: message}
}

// isCode says whether err is, or wraps, a broker's answer with that code.
func isCode(err error, code int16) bool {
	var e *BrokerError
	return errors.As(err, &e) && e.Code == code
}

// reaction is what the driver does about a code besides telling the engine.
type reaction uint8

const (
	refreshLeader reaction = 1 << iota // ask who leads; the partition has no leader until then
	retryAtOnce                        // the next attempt need not wait
	newProducer                        // the sequence cannot be continued: give the producer id up for this partition
	learnLimit                         // the topic's size limit may not be what we think
	encodeAgain                        // the bytes did not arrive as they are in the records
	unexpected                         // no working broker answers it: count it, and tell whoever reads the error
)

// meaning is one row of the table: what a code in the answer to a Produce request says about the batch.
//
// Whose fault it is follows from verdict and trouble: Refused is about records, those that the broker names, or the one that
// is left when the batch has been narrowed; everything else is the trouble of partition, topic, cluster or configuration,
// and no record's.
type meaning struct {
	name    string
	verdict sink.Verdict
	trouble sink.Trouble
	class   outbox.ErrorClass // of a record that is guilty; empty: no record ever is
	react   reaction
}

const nobody outbox.ErrorClass = ""

// meanings has a row for each code that a broker is known to answer to a producer.
//
// NotWritten is only for codes that come before the append. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION and
// KAFKA_STORAGE_ERROR are not among them, although they sound so: with acks=all a leader appends first and answers them
// when it loses the partition while it waits for its followers, who may have the batch by then and keep it
// (kafka.server.DelayedProduce.tryComplete, Partition.checkEnoughReplicasReachOffset).
//
// A refused record is Transient when the same event may be taken later: a timestamp that the topic does not allow changes
// with the next attempt (message.timestamp: publish) or comes into the limits with time; a policy is the broker's, and a
// person may change it. Size and content stay. The codes that no working broker answers blame a record only as in odd.go.
var meanings = map[int16]meaning{
	-1: {"UNKNOWN_SERVER_ERROR", sink.Unknown, sink.PartitionTrouble, outbox.Transient, unexpected},
	0:  {"NONE", sink.Accepted, sink.NoTrouble, nobody, 0},
	2:  {"CORRUPT_MESSAGE", sink.NotWritten, sink.PartitionTrouble, outbox.Transient, encodeAgain | unexpected},
	3:  {"UNKNOWN_TOPIC_OR_PARTITION", sink.Unknown, sink.TopicTrouble, nobody, refreshLeader},
	5:  {"LEADER_NOT_AVAILABLE", sink.NotWritten, sink.PartitionTrouble, nobody, refreshLeader},
	6:  {"NOT_LEADER_OR_FOLLOWER", sink.Unknown, sink.PartitionTrouble, nobody, refreshLeader | retryAtOnce},
	7:  {"REQUEST_TIMED_OUT", sink.Unknown, sink.PartitionTrouble, nobody, 0},
	8:  {"BROKER_NOT_AVAILABLE", sink.NotWritten, sink.ClusterTrouble, nobody, refreshLeader},
	9:  {"REPLICA_NOT_AVAILABLE", sink.NotWritten, sink.PartitionTrouble, nobody, refreshLeader},
	10: {"MESSAGE_TOO_LARGE", sink.Refused, sink.NoTrouble, outbox.Permanent, learnLimit},
	13: {"NETWORK_EXCEPTION", sink.Unknown, sink.ClusterTrouble, nobody, refreshLeader},
	14: {"COORDINATOR_LOAD_IN_PROGRESS", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	15: {"COORDINATOR_NOT_AVAILABLE", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	16: {"NOT_COORDINATOR", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	17: {"INVALID_TOPIC_EXCEPTION", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	18: {"RECORD_LIST_TOO_LARGE", sink.Refused, sink.NoTrouble, outbox.Permanent, learnLimit},
	19: {"NOT_ENOUGH_REPLICAS", sink.NotWritten, sink.PartitionTrouble, nobody, 0},
	20: {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", sink.Unknown, sink.PartitionTrouble, nobody, 0},
	21: {"INVALID_REQUIRED_ACKS", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	29: {"TOPIC_AUTHORIZATION_FAILED", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	31: {"CLUSTER_AUTHORIZATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	32: {"INVALID_TIMESTAMP", sink.Refused, sink.NoTrouble, outbox.Transient, 0},
	33: {"UNSUPPORTED_SASL_MECHANISM", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	34: {"ILLEGAL_SASL_STATE", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	35: {"UNSUPPORTED_VERSION", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	36: {"TOPIC_ALREADY_EXISTS", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	37: {"INVALID_PARTITIONS", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	38: {"INVALID_REPLICATION_FACTOR", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	40: {"INVALID_CONFIG", sink.NotWritten, sink.TopicTrouble, nobody, 0},
	41: {"NOT_CONTROLLER", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	42: {"INVALID_REQUEST", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	43: {"UNSUPPORTED_FOR_MESSAGE_FORMAT", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	44: {"POLICY_VIOLATION", sink.Refused, sink.NoTrouble, outbox.Transient, 0},
	45: {"OUT_OF_ORDER_SEQUENCE_NUMBER", sink.NotWritten, sink.PartitionTrouble, nobody, newProducer | retryAtOnce},
	46: {"DUPLICATE_SEQUENCE_NUMBER", sink.Accepted, sink.NoTrouble, nobody, 0},
	47: {"INVALID_PRODUCER_EPOCH", sink.NotWritten, sink.PartitionTrouble, nobody, newProducer | retryAtOnce},
	49: {"INVALID_PRODUCER_ID_MAPPING", sink.NotWritten, sink.PartitionTrouble, nobody, newProducer | retryAtOnce},
	51: {"CONCURRENT_TRANSACTIONS", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	53: {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	54: {"SECURITY_DISABLED", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	56: {"KAFKA_STORAGE_ERROR", sink.Unknown, sink.PartitionTrouble, nobody, refreshLeader},
	58: {"SASL_AUTHENTICATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	59: {"UNKNOWN_PRODUCER_ID", sink.NotWritten, sink.PartitionTrouble, nobody, newProducer | retryAtOnce},
	72: {"LISTENER_NOT_FOUND", sink.NotWritten, sink.PartitionTrouble, nobody, refreshLeader},
	74: {"FENCED_LEADER_EPOCH", sink.NotWritten, sink.PartitionTrouble, nobody, refreshLeader | retryAtOnce},
	75: {"UNKNOWN_LEADER_EPOCH", sink.NotWritten, sink.PartitionTrouble, nobody, refreshLeader},
	76: {"UNSUPPORTED_COMPRESSION_TYPE", sink.NotWritten, sink.ConfigurationTrouble, nobody, 0},
	77: {"STALE_BROKER_EPOCH", sink.Unknown, sink.ClusterTrouble, nobody, refreshLeader},
	87: {"INVALID_RECORD", sink.Refused, sink.NoTrouble, outbox.Permanent, 0},
	89: {"THROTTLING_QUOTA_EXCEEDED", sink.NotWritten, sink.ClusterTrouble, nobody, 0},
	90: {"PRODUCER_FENCED", sink.NotWritten, sink.PartitionTrouble, nobody, newProducer | retryAtOnce},

	100: {"UNKNOWN_TOPIC_ID", sink.Unknown, sink.TopicTrouble, nobody, refreshLeader},
	103: {"INCONSISTENT_TOPIC_ID", sink.Unknown, sink.TopicTrouble, nobody, refreshLeader},
	129: {"REBOOTSTRAP_REQUIRED", sink.NotWritten, sink.ClusterTrouble, nobody, refreshLeader},
}

// meaningOf is the row of the code. A code without a row may mean anything: the batch may have been written.
func meaningOf(code int16) meaning {
	if m, known := meanings[code]; known {
		return m
	}
	return meaning{fmt.Sprintf("CODE_%d", code), sink.Unknown, sink.PartitionTrouble, outbox.Transient, unexpected}
}
