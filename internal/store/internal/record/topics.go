package record

import (
	"time"
)

// Offset reports that all our records of a partition below Next are journaled.
type Offset struct {
	Topic     string
	Partition int32
	Next      int64
}

// TopicTail is where the records of ours begin that may not be journaled.
type TopicTail struct {
	Topic string
	From  map[int32]int64 // by partition; the first offset that is not known to be journaled
	Since time.Time       // when the topic was first used: the start for partitions that are not in From
	// Cluster is a digest of the cluster that had the topic, as the relay has noted it; 0: it has not.
	Cluster int64
	// ID is a digest of the id that the cluster gave the topic when it was created, likewise.
	ID int64
}

// Partition numbers of the rows that stand for the whole topic.
const (
	TopicItself = -1 // its offset is a Cluster
	TopicID     = -2 // its offset is an ID
)
