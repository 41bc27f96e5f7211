package sink

import (
	"context"
	"errors"
	"math"
	"time"
)

// Kinds of errors of Tail. An error of neither kind is final.
var (
	// ErrUnreachable reports that no broker answered: nothing can be read, nor can anything be sent.
	ErrUnreachable = errors.New("no broker answers")
	// ErrPassing reports that the same question may be answered in a moment.
	ErrPassing = errors.New("it may pass")
)

// Tailer is a [Driver] that can read back the end of a topic: what a process that died had sent and not recorded.
type Tailer interface {
	// Tail hands out the records of the topic's partitions, each partition from its start to the end that it has when it
	// is asked, in order within a partition, and tells q.Gone how many the topic may have lost from there on. An error
	// names what could not be read; what could be was handed out. It can be ErrUnreachable or ErrPassing too. A topic that
	// does not exist is empty.
	Tail(ctx context.Context, q TailQuery, each func(TailRecord) error) error
}

// Deferrer is a [Tailer] that can do without: it finds by itself, before it sends the first record to a topic, what of
// the records is there already.
type Deferrer interface {
	Tailer
	// Defer is called when Tail could not read the topic, before anything is sent. False: nothing tells where to begin,
	// and records that the topic has may be sent once more.
	Defer(ctx context.Context, q TailQuery) bool
}

// Ender is a [Driver] that can tell the ends of topics.
type Ender interface {
	// Ends are the next offsets of the topic's partitions; nil: the topic does not exist.
	Ends(ctx context.Context, topic string) (map[int32]int64, error)
}

// Clustered is a [Driver] that can tell which cluster answers, and one topic from another of its name.
type Clustered interface {
	// ClusterID is empty where brokers do not say.
	ClusterID(ctx context.Context) (id string, err error)
	// TopicIDs are ids that the cluster gave the topics when it created them. Topics that are not there, or have no id,
	// are left out. None is created.
	TopicIDs(ctx context.Context, topics []string) (map[string]string, error)
}

// TailQuery selects what to read.
type TailQuery struct {
	Topic string
	From  map[int32]int64 // first offset, by partition
	Since time.Time       // for partitions without one: records of this time and later; zero: all
	// Headers are the names of the headers to hand out; empty ones are none.
	Headers [TailHeaders]string
	// Gone is called with the most records that were written from the start on and are not in the topic any more:
	// compacted, expired, deleted or consumed. nil: no caller asks. A topic can tell more than once.
	Gone func(atMost int64)
}

// HowManyIsUnknown is passed to Gone by brokers that do not count.
const HowManyIsUnknown = math.MaxInt32

// TailHeaders bounds the headers of a record that can be asked for.
const TailHeaders = 5

// Lost calls Gone, if it is set and there is something to tell.
func (q TailQuery) Lost(atMost int64) {
	if q.Gone != nil && atMost > 0 {
		q.Gone(atMost)
	}
}

// TailRecord is one record of a topic. The bytes are valid during the call only.
type TailRecord struct {
	Partition int32
	Offset    int64
	Key       []byte              // nil: without one, or the driver does not tell
	Headers   [TailHeaders][]byte // the values asked for; nil where there is no such header
}
