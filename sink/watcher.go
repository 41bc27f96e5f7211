package sink

// QueueWatcher is a [Driver] that polls its consumers' queues.
type QueueWatcher interface {
	// Queues are the depths of the consumers' queues, as seen last; the driver looks from the first call on. Any goroutine
	// may call it.
	Queues() []ConsumerQueues
}

// ConsumerQueues are the queues of one consumer. Each figure is nil while it is not known: there was no look yet or
// lately, or the queue is missing.
type ConsumerQueues struct {
	Consumer  string
	Messages  *int64 // waiting in the consumer's queue
	Consumers *int64 // programs that read it
	Retrying  *int64 // waiting in retry queues
	Dead      *int64 // in the dead-letter queue
}
