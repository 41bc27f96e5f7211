package sink

import (
	"context"
	"iter"
	"time"
)

// Browser is a [Driver] whose topics can be read whole, as an audit does. Reading takes nothing out of a topic, and
// leaves alone what the driver knows of topics' ends. Topics have one partition, 0.
type Browser interface {
	Driver
	// Extent tells what the topic holds when it is asked.
	Extent(ctx context.Context, topic string) (Extent, error)
	// Browse hands out the topic's records with offsets from one to before the other, in order. It must not be asked for
	// more than an Extent has told of. After an error it may be asked to go on behind the last record.
	Browse(ctx context.Context, topic string, from, before int64, each func(Stored) error) error
}

// Extent describes a topic's range, and the meaning of a gap in it.
type Extent struct {
	Exists bool
	// First is the offset below which the broker has removed records by its limits of age, size or number, 0 if it has
	// removed none; Next is the one behind the last record.
	First, Next int64
	// Oldest is when the record at First was written, where First is not 0 and the broker tells; else zero. It judges
	// records without an offset in the journal.
	Oldest time.Time
	// Thins reports whether the broker's own rules may have removed records anywhere.
	Thins bool
	// Deleted is an offset up to which clients have deleted single records, as some consumers do with what they have
	// handled; 0 if none did.
	Deleted int64
	Note    string // what a person should know about all this
}

// Stored is a record as a topic holds it, valid only during the call.
type Stored struct {
	Offset  int64
	Key     []byte // nil = without a key
	Value   []byte // nil = null
	Headers iter.Seq2[string, []byte]
}
