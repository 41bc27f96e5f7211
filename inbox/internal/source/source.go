// Package source is the seam between the inbox and a broker that is not Kafka. An implementation reads one topic by one
// connection, and says what the broker tells about it. It knows no database, no key and no handler; who reads a topic,
// and from where on, the inbox decides.
//
// Tested with its implementations, on real servers, in the module test/inbox.
package source

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Source names topics of a broker.
type Source interface {
	// System is the broker's kind, as OpenTelemetry's messaging.system calls it.
	System() string
	// Topics are the names, each of which one process reads at a time.
	Topics() []string
	// Problem returns an error in the settings, before anything is dialed.
	Problem() error
	// Queue reports whether the topics are queues: what is settled is gone. Else they are logs, which keep their records
	// and know them by their offsets.
	Queue() bool
	// Open connects for one topic.
	Open(ctx context.Context, topic string) (Topic, error)
}

// ErrHeld reports that another process reads the queue.
var ErrHeld = errors.New("another process reads it")

// Topic is an open topic. Next is called by one goroutine, Settle by any, the others by one other. An error of any of
// them ends its use: it is closed, and opened again.
type Topic interface {
	// Bounds says how the topic stands for one who has read what is below next.
	Bounds(ctx context.Context, next int64) (Bounds, error)
	// Seek begins reading. It comes before Next. It returns ErrHeld when another process still reads a queue.
	Seek(ctx context.Context, next int64) error
	// Next waits for records, whose offsets grow.
	Next(ctx context.Context) ([]*kgo.Record, error)
	// Settle says, of a queue, that everything below next is decided, and that in above, too.
	Settle(next int64, above []int64) error
	Close()
}

// Unknown is a number that the broker does not tell.
const Unknown = -1

// Bounds are the limits of a topic by its broker.
type Bounds struct {
	ID     string // tells the topic from another one that was created with its name; "" if the broker does not
	First  int64  // the lowest offset that can be read
	End    int64  // the offset behind the last record, or Unknown
	Lost   int64  // records from next on that are gone: so many at most, or Unknown for some or none
	Unread int64  // records from next on, or Unknown
	Back   bool   // the topic ends below next: it is not the one that was read
}

// Set adds a header to a record.
func Set(r *kgo.Record, name string, value []byte) {
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: value})
}
