// Package codes says what the codes in a broker's answers mean: whether a batch was written, whose trouble it is, and
// whether a record is to blame. What follows from that is the driver's business. Its table is tested code by code where
// it is acted upon, in sink/kafka (codes_test.go).
package codes

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
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

// ErrorOf is the error of a code, nil for 0.
func ErrorOf(code int16, message string) error {
	if code == 0 {
		return nil
	}
	return &BrokerError{Code: code, Name: Of(code).Name, Message: message}
}

// Is reports whether err is, or wraps, a broker's answer with that code.
func Is(err error, code int16) bool {
	var e *BrokerError
	return errors.As(err, &e) && e.Code == code
}

// Reaction is what the driver does about a code, apart from reporting it to the engine.
type Reaction uint8

// The reactions.
const (
	RefreshLeader Reaction = 1 << iota // ask who leads; the partition has no leader until then
	RetryAtOnce                        // the next attempt need not wait
	NewProducer                        // the sequence cannot be continued: give the producer id up for this partition
	LearnLimit                         // the topic's size limit may not be what we think
	EncodeAgain                        // the bytes did not arrive as they are in the records
	Unexpected                         // no working broker answers it: count it, and explain it in the error
)

// Meaning is one row of the table: what a code in the answer to a Produce request says about the batch.
//
// Whose fault it is follows from Verdict and Trouble: Refused is about records, those that the broker names, or the one
// that is left when the batch has been narrowed; everything else is the trouble of partition, topic, cluster or
// configuration, and no record's.
type Meaning struct {
	Name    string
	Verdict sink.Verdict
	Trouble sink.Trouble
	Class   outbox.ErrorClass // of a guilty record; Nobody if no record can be
	React   Reaction
}

// Nobody is the class for codes that blame no record.
const Nobody outbox.ErrorClass = ""

// Codes that are handled by name.
const (
	UnknownTopic     = 3
	TooLarge         = 10
	InvalidTopic     = 17
	NoMechanism      = 33
	NoSASL           = 34
	TopicExists      = 36
	NotController    = 41
	OutOfOrder       = 45
	TopicDenied      = 29
	ClusterDenied    = 31
	NotAuthenticated = 58
)

// meanings has a row for each code that a broker is known to answer to a producer.
//
// NotWritten is only for codes that come before the append. NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION and
// KAFKA_STORAGE_ERROR are not among them, although they sound so: with acks=all a leader appends first and answers them
// when it loses the partition while it waits for its followers, who may have the batch by then and keep it
// (kafka.server.DelayedProduce.tryComplete, Partition.checkEnoughReplicasReachOffset).
//
// A refused record is Transient when the same event may be taken later: a timestamp that the topic does not allow
// changes with the next attempt (message.timestamp: publish) or comes into the limits with time; a policy is the
// broker's, and a person may change it. Size and content stay. The codes that no working broker answers blame a record
// only as in odd.go.
var meanings = map[int16]Meaning{
	-1: {"UNKNOWN_SERVER_ERROR", sink.Unknown, sink.PartitionTrouble, outbox.Transient, Unexpected},
	0:  {"NONE", sink.Accepted, sink.NoTrouble, Nobody, 0},
	2:  {"CORRUPT_MESSAGE", sink.NotWritten, sink.PartitionTrouble, outbox.Transient, EncodeAgain | Unexpected},
	3:  {"UNKNOWN_TOPIC_OR_PARTITION", sink.Unknown, sink.TopicTrouble, Nobody, RefreshLeader},
	5:  {"LEADER_NOT_AVAILABLE", sink.NotWritten, sink.PartitionTrouble, Nobody, RefreshLeader},
	6:  {"NOT_LEADER_OR_FOLLOWER", sink.Unknown, sink.PartitionTrouble, Nobody, RefreshLeader | RetryAtOnce},
	7:  {"REQUEST_TIMED_OUT", sink.Unknown, sink.PartitionTrouble, Nobody, 0},
	8:  {"BROKER_NOT_AVAILABLE", sink.NotWritten, sink.ClusterTrouble, Nobody, RefreshLeader},
	9:  {"REPLICA_NOT_AVAILABLE", sink.NotWritten, sink.PartitionTrouble, Nobody, RefreshLeader},
	10: {"MESSAGE_TOO_LARGE", sink.Refused, sink.NoTrouble, outbox.Permanent, LearnLimit},
	13: {"NETWORK_EXCEPTION", sink.Unknown, sink.ClusterTrouble, Nobody, RefreshLeader},
	14: {"COORDINATOR_LOAD_IN_PROGRESS", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	15: {"COORDINATOR_NOT_AVAILABLE", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	16: {"NOT_COORDINATOR", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	17: {"INVALID_TOPIC_EXCEPTION", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	18: {"RECORD_LIST_TOO_LARGE", sink.Refused, sink.NoTrouble, outbox.Permanent, LearnLimit},
	19: {"NOT_ENOUGH_REPLICAS", sink.NotWritten, sink.PartitionTrouble, Nobody, 0},
	20: {"NOT_ENOUGH_REPLICAS_AFTER_APPEND", sink.Unknown, sink.PartitionTrouble, Nobody, 0},
	21: {"INVALID_REQUIRED_ACKS", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	29: {"TOPIC_AUTHORIZATION_FAILED", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	31: {"CLUSTER_AUTHORIZATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	32: {"INVALID_TIMESTAMP", sink.Refused, sink.NoTrouble, outbox.Transient, 0},
	33: {"UNSUPPORTED_SASL_MECHANISM", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	34: {"ILLEGAL_SASL_STATE", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	35: {"UNSUPPORTED_VERSION", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	36: {"TOPIC_ALREADY_EXISTS", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	37: {"INVALID_PARTITIONS", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	38: {"INVALID_REPLICATION_FACTOR", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	40: {"INVALID_CONFIG", sink.NotWritten, sink.TopicTrouble, Nobody, 0},
	41: {"NOT_CONTROLLER", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	42: {"INVALID_REQUEST", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	43: {"UNSUPPORTED_FOR_MESSAGE_FORMAT", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	44: {"POLICY_VIOLATION", sink.Refused, sink.NoTrouble, outbox.Transient, 0},
	45: {"OUT_OF_ORDER_SEQUENCE_NUMBER", sink.NotWritten, sink.PartitionTrouble, Nobody, NewProducer | RetryAtOnce},
	46: {"DUPLICATE_SEQUENCE_NUMBER", sink.Accepted, sink.NoTrouble, Nobody, 0},
	47: {"INVALID_PRODUCER_EPOCH", sink.NotWritten, sink.PartitionTrouble, Nobody, NewProducer | RetryAtOnce},
	49: {"INVALID_PRODUCER_ID_MAPPING", sink.NotWritten, sink.PartitionTrouble, Nobody, NewProducer | RetryAtOnce},
	51: {"CONCURRENT_TRANSACTIONS", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	53: {"TRANSACTIONAL_ID_AUTHORIZATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	54: {"SECURITY_DISABLED", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	56: {"KAFKA_STORAGE_ERROR", sink.Unknown, sink.PartitionTrouble, Nobody, RefreshLeader},
	58: {"SASL_AUTHENTICATION_FAILED", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	59: {"UNKNOWN_PRODUCER_ID", sink.NotWritten, sink.PartitionTrouble, Nobody, NewProducer | RetryAtOnce},
	72: {"LISTENER_NOT_FOUND", sink.NotWritten, sink.PartitionTrouble, Nobody, RefreshLeader},
	74: {"FENCED_LEADER_EPOCH", sink.NotWritten, sink.PartitionTrouble, Nobody, RefreshLeader | RetryAtOnce},
	75: {"UNKNOWN_LEADER_EPOCH", sink.NotWritten, sink.PartitionTrouble, Nobody, RefreshLeader},
	76: {"UNSUPPORTED_COMPRESSION_TYPE", sink.NotWritten, sink.ConfigurationTrouble, Nobody, 0},
	77: {"STALE_BROKER_EPOCH", sink.Unknown, sink.ClusterTrouble, Nobody, RefreshLeader},
	87: {"INVALID_RECORD", sink.Refused, sink.NoTrouble, outbox.Permanent, 0},
	89: {"THROTTLING_QUOTA_EXCEEDED", sink.NotWritten, sink.ClusterTrouble, Nobody, 0},
	90: {"PRODUCER_FENCED", sink.NotWritten, sink.PartitionTrouble, Nobody, NewProducer | RetryAtOnce},

	100: {"UNKNOWN_TOPIC_ID", sink.Unknown, sink.TopicTrouble, Nobody, RefreshLeader},
	103: {"INCONSISTENT_TOPIC_ID", sink.Unknown, sink.TopicTrouble, Nobody, RefreshLeader},
	129: {"REBOOTSTRAP_REQUIRED", sink.NotWritten, sink.ClusterTrouble, Nobody, RefreshLeader},
}

// Of is the row of the code. A code without a row may mean anything: the batch may have been written.
func Of(code int16) Meaning {
	if m, known := meanings[code]; known {
		return m
	}
	return Meaning{fmt.Sprintf("CODE_%d", code), sink.Unknown, sink.PartitionTrouble, outbox.Transient, Unexpected}
}
