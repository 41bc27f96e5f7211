package sink

import (
	"slices"
	"time"
)

// Where there are many partitions, a request that took what each of them has would use up MaxUnrecorded, and nothing
// could be sent until it is answered and recorded; the next one, which takes what came in the meantime, would be made
// of crumbs. So partitions take turns: from a third of MaxUnrecorded (turnShare) on, a request leaves those whose
// batches gain by waiting to the next one, in which they come first. Those with largeBatch records gain nothing, so few
// partitions that share all events go together as before.
const (
	turnShare  = 3
	largeBatch = 256
	// largeBytes is the size from which a batch costs by its bytes, not by its records.
	largeBytes = 256 << 10
)

// gainsByWaiting reports whether the partition's next batch would be notably cheaper for each record if it were larger.
// A batch that is cut already does not grow.
func (p *partition) gainsByWaiting() bool { return p.batch == nil && p.queue.length < largeBatch }

const (
	// behindShare and mostBehind bound the pause that being behind adds between two requests to a node; see Config.Behind.
	behindShare = 50
	mostBehind  = 20 * time.Millisecond
	// aheadShare: a quarter of MaxUnrecorded is left when a full batch goes at once. What is being recorded, and waits for
	// it, is half.
	aheadShare = 4
)

// linger is the least time between two turns of a partition, and so between two requests to a node that takes all.
func (e *Engine) linger(w *worker) time.Duration {
	linger := e.config.Linger
	if e.config.Behind != nil && !e.fullAhead(w) {
		linger = max(linger, min(e.config.Behind()/behindShare, mostBehind))
	}
	return linger
}

// fullAhead reports whether a partition of the worker's last request has a full batch waiting, which would not become
// larger with time, or one that is large by bytes, and that there is credit for more. So it is where few partitions get
// nearly all events, and where events are large: the window holds few of them, and most of it would wait.
func (e *Engine) fullAhead(w *worker) bool {
	if e.config.MaxUnrecorded-e.unrecorded < e.config.MaxUnrecorded/aheadShare {
		return false
	}
	full := e.fullBatch()
	return slices.ContainsFunc(w.sending, func(p *partition) bool {
		return p.batch == nil && (p.queue.length >= full || p.queueBytes >= largeBytes)
	})
}
