package simulator

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
)

// The kinds of broker that a run can have. What else a seed draws is the same for each.
const (
	Kafka = "kafka" // partitions and an idempotent producer
	// Conditional takes an append only if its stream ends where the writer believes: what NATS JetStream, Redis Streams
	// and queues of BullMQ are for the relay.
	Conditional = "conditional"
	// Confirm confirms what it is sent, or does not, and cannot be read back: RabbitMQ's queues and webhooks.
	Confirm = "confirm"
)

// Kinds are the names of the above.
var Kinds = []string{Kafka, Conditional, Confirm}

// brokerKind describes a run's broker, besides its name.
type brokerKind struct {
	name string

	// Conditional.
	oneStream bool // all topics are in one stream, as subjects of JetStream can be
	scripts   bool // records are appended some at a time, whole or not at all, as by a script in Redis; else one by one
	gaps      bool // offsets grow by more than one from script to script

	queues bool // Confirm: RabbitMQ's exchanges, else webhooks
}

// of makes the run one with this kind of broker.
func (p *profile) of(name string, d *dice) {
	p.kind.name = name
	switch name {
	case "", Kafka:
	case Conditional:
		p.partitions, p.deletedTopic = 1, false
		p.kind.oneStream, p.kind.scripts, p.kind.gaps = d.chance(0.4), d.chance(0.5), d.chance(0.3)
		p.named = true
	case Confirm:
		p.kind.queues, p.foreign, p.losses = d.chance(0.5), false, 0
		if p.kind.queues {
			p.partitions, p.permanent, p.transient = 1, 0, 0 // a queue does not look at messages
		}
	default:
		panic(fmt.Sprintf("no kind of broker is called %s", name))
	}
}

// driverOf makes the driver with which the process reaches the brokers.
func (w *world) driverOf(p *process) sink.Driver {
	switch k := &w.profile.kind; {
	case k.name == Conditional:
		return &logDriver{driver: newDriver(p)}
	case k.name == Confirm && k.queues:
		return newQueueDriver(p)
	case k.name == Confirm:
		return newPostDriver(p)
	}
	return newDriver(p)
}

// partitionsOfDead is how many partitions the topic of dead letters has.
func (p *profile) partitionsOfDead() int {
	if p.kind.name == Conditional || p.kind.name == Confirm {
		return p.partitions
	}
	return 2
}
