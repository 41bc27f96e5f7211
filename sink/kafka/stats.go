package kafka

import "sync/atomic"

// Stats counts what happened since the driver was made.
type Stats struct {
	Requests uint64 // Produce requests sent or tried
	// those of them that were given up because the answer took unusually long, and sent again batch by batch
	SplitRequests uint64
	// records that may be in a topic twice: sent again under another producer id, to another partition because theirs was
	// gone, or when the broker may have forgotten them
	PossibleDuplicates uint64
	ProducerResets     uint64 // producer ids given up for a partition
	LeaderMoves        uint64 // changes of a partition's leader, to none included
	MetadataFailures   uint64 // times that no broker could be asked who leads what
	UnexpectedAnswers  uint64 // batches answered with CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR, or a code that we do not know
}

type counters struct {
	requests, split, possibleDuplicates, producerResets, leaderMoves, metadataFailures, unexpected atomic.Uint64
}

// Stats is safe to call from any goroutine.
func (d *Driver) Stats() Stats {
	return Stats{
		Requests:           d.stats.requests.Load(),
		SplitRequests:      d.stats.split.Load(),
		PossibleDuplicates: d.stats.possibleDuplicates.Load(),
		ProducerResets:     d.stats.producerResets.Load(),
		LeaderMoves:        d.stats.leaderMoves.Load(),
		MetadataFailures:   d.stats.metadataFailures.Load(),
		UnexpectedAnswers:  d.stats.unexpected.Load(),
	}
}
