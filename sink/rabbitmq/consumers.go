package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Consumer is a consumer of exchanges, by the queues that it has.
type Consumer struct {
	Name        string   // of its queue
	DeadLetters string   // the queue of what it gave up
	Exchanges   []string // that its queue is bound to
	Bind        []string // the keys that it is bound with
	Retries     []Retry
	// SingleActive has its queue delivered to one process at a time.
	SingleActive bool
}

// Retry is a queue that messages return from to the consumer's after a pause.
type Retry struct {
	Queue string
	Pause time.Duration
}

// partsOf are the exchanges, then the queues of each consumer. Its own comes last: what goes to it has somewhere to go
// from there.
func partsOf(consumers []Consumer) (list []Part) {
	for _, c := range consumers {
		for _, name := range c.Exchanges {
			if exchange := exchangePart(name); !slices.ContainsFunc(list, exchange.same) {
				list = append(list, exchange)
			}
		}
	}
	for _, c := range consumers {
		list = append(list, queuePart(c.DeadLetters, "", 0))
		for _, r := range c.Retries {
			if retry := queuePart(r.Queue, c.Name, r.Pause); !slices.ContainsFunc(list, retry.same) {
				list = append(list, retry)
			}
		}
		own := queuePart(c.Name, c.DeadLetters, 0)
		if c.SingleActive {
			own.Arguments[singleActive] = true
		}
		for _, exchange := range c.Exchanges {
			for _, key := range c.Bind {
				own.Bindings = append(own.Bindings, Binding{exchange, key})
			}
		}
		list = append(list, own)
	}
	return list
}

func (p *Part) same(other Part) bool { return p.Kind == other.Kind && p.Name == other.Name }

// MissingError reports exchanges and queues that the configuration names and the server does not have.
type MissingError struct {
	Names     []string // such as "queue notifications.dlq"
	Consumers bool     // the configuration has consumers
}

func (e *MissingError) Error() string { return "missing at the server: " + strings.Join(e.Names, ", ") }

// Fix returns the advice.
func (e *MissingError) Fix() string {
	const command = "cdc-relay init --rabbitmq-topology"
	if e.Consumers {
		return "run " + command + " with this configuration and a user that may configure them; --dry-run prints the plan"
	}
	return "declare the exchange and bind a durable queue to it; or run " + command + ", which creates both for the one " +
		"exchange of a message.topic without columns, or for the consumers in rabbitmq.consumers"
}

// missing looks for what the consumers need, and for the exchange, if there is only one. It changes nothing.
func (d *Driver) missing(ctx context.Context, conn *connection, exchange string) error {
	list := partsOf(d.config.Consumers)
	if only := exchangePart(exchange); exchange != "" && !slices.ContainsFunc(list, only.same) {
		list = append(list, only)
	}
	defer conn.endWith(ctx)()
	missing := &MissingError{Consumers: len(d.config.Consumers) > 0}
	for i := range list {
		p := &list[i]
		if err := p.find(conn); err != nil {
			return fmt.Errorf("look for %s %s: %w", p.Kind, p.Name, err)
		}
		if !p.Exists {
			missing.Names = append(missing.Names, p.Kind+" "+p.Name)
		}
	}
	if len(missing.Names) > 0 {
		return missing
	}
	return nil
}

// unordered looks for queues of consumers that are to have x-single-active-consumer and lack it, as far as the user
// may compare a queue's arguments: RabbitMQ asks for the right to configure it. It changes nothing.
func (d *Driver) unordered(ctx context.Context, conn *connection) (warnings []string, err error) {
	list := partsOf(d.config.Consumers)
	defer conn.endWith(ctx)()
	for i := range list {
		p := &list[i]
		if p.Arguments[singleActive] != true {
			continue
		}
		err := p.look(conn)
		var said *amqp.Error
		if errors.As(err, &said) && (said.Code == amqp.AccessRefused || said.Code == amqp.PreconditionFailed) {
			continue // init names other differences
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s %s: %w", p.Kind, p.Name, err)
		}
		if p.Warning != "" {
			warnings = append(warnings, p.Warning)
		}
	}
	return warnings, nil
}
