package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// RetryPauses are the pauses of the retry queues that [Driver.Topology] makes, in order.
var RetryPauses = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// Part is an exchange or a queue of a topology for consumers.
type Part struct {
	Kind      string         `json:"kind"` // exchange or queue
	Name      string         `json:"name"`
	Type      string         `json:"type"` // topic, or quorum
	Arguments map[string]any `json:"arguments,omitempty"`
	Bound     string         `json:"bound_to,omitempty"` // the exchange, with the key #
	Exists    bool           `json:"exists"`             // it was there before
}

// DifferentError says that something is there under a name of the topology and is not as it would be made. Nothing was
// made or changed.
type DifferentError struct{ Differences []string }

func (e *DifferentError) Error() string {
	return "what is there differs from what would be created, and nothing was created or changed:\n  " +
		strings.Join(e.Differences, "\n  ") +
		"\nDelete what nobody needs, once it is empty, or keep your own and do without this topology"
}

// parts are the topology of an exchange: all that it sends goes to the work queue. A consumer puts what it could not
// handle into a retry queue, from which it comes back to the work queue when the pause is over, and what it gives up
// into the dead-letter queue. Queues are of quorum type, refuse when they are full instead of dropping the oldest, and
// hand on what expires or is rejected at least once.
func parts(exchange string) []Part {
	work, dead := exchange+".work", exchange+".dead"
	queue := func(name, next string, arguments map[string]any) Part {
		arguments["x-overflow"] = amqp.QueueOverflowRejectPublish
		if next != "" {
			// The default exchange: other queues behind the exchange do not get a retried message once more.
			arguments["x-dead-letter-exchange"], arguments["x-dead-letter-routing-key"] = "", next
			arguments["x-dead-letter-strategy"] = "at-least-once"
		}
		return Part{Kind: "queue", Name: name, Type: amqp.QueueTypeQuorum, Arguments: arguments}
	}
	list := []Part{{Kind: "exchange", Name: exchange, Type: amqp.ExchangeTopic}, queue(dead, "", map[string]any{})}
	for _, pause := range RetryPauses {
		list = append(list, queue(fmt.Sprintf("%s.retry.%dm", exchange, pause/time.Minute), work,
			map[string]any{"x-message-ttl": pause.Milliseconds()}))
	}
	list = append(list, queue(work, dead, map[string]any{}))
	list[len(list)-1].Bound = exchange
	return list
}

// Topology makes what consumers need behind the exchange and is not there: the exchange, a work queue, retry queues and
// a dead-letter queue. It leaves alone what is there; if that is of another kind, it makes nothing and the error is a
// *DifferentError. With dryRun it only looks.
func (d *Driver) Topology(ctx context.Context, exchange string, dryRun bool) ([]Part, error) {
	conn, _, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	defer stop()
	list := parts(exchange)
	different := &DifferentError{}
	for i := range list {
		err := list[i].look(conn)
		var said *amqp.Error
		switch {
		case errors.As(err, &said) && said.Code == amqp.PreconditionFailed:
			different.Differences = append(different.Differences, fmt.Sprintf("%s %s: %s", list[i].Kind, list[i].Name,
				strings.TrimPrefix(said.Reason, "PRECONDITION_FAILED - ")))
		case err != nil:
			return nil, fmt.Errorf("look for %s %s: %w%s", list[i].Kind, list[i].Name, err, advice(err))
		}
	}
	if len(different.Differences) > 0 {
		return nil, different
	}
	if dryRun {
		return list, nil
	}
	for _, p := range list {
		err := p.declare(conn)
		// A binding cannot be asked for. One that a person has changed on purpose is left alone.
		if err == nil && p.Bound != "" && !(p.Exists && list[0].Exists) {
			err = onChannel(conn, func(c *amqp.Channel) error { return c.QueueBind(p.Name, "#", p.Bound, false, nil) })
		}
		if err != nil {
			return nil, fmt.Errorf("create %s %s: %w%s", p.Kind, p.Name, err, advice(err))
		}
	}
	return list, nil
}

// advice is what helps against the refusal.
func advice(err error) string {
	var said *amqp.Error
	if errors.As(err, &said) && said.Code == amqp.AccessRefused {
		return ": the user needs the permission to configure, write and read these names (rabbitmqctl set_permissions); " +
			"what was created before stays, and it is safe to run this again"
	}
	return ""
}

// look finds out whether the part is there, and as it would be made. What is missing is an error to RabbitMQ, which
// closes the channel, so each question has its own.
func (p *Part) look(conn *amqp.Connection) error {
	err := onChannel(conn, func(c *amqp.Channel) error {
		if p.Kind == "exchange" {
			return c.ExchangeDeclarePassive(p.Name, p.Type, true, false, false, false, nil)
		}
		_, err := c.QueueDeclarePassive(p.Name, true, false, false, false, nil)
		return err
	})
	var said *amqp.Error
	if errors.As(err, &said) && said.Code == amqp.NotFound {
		return nil
	}
	if p.Exists = err == nil; !p.Exists {
		return err
	}
	return p.declare(conn) // compares, since it is there
}

// declare makes the part, or compares it with what is there.
func (p *Part) declare(conn *amqp.Connection) error {
	return onChannel(conn, func(c *amqp.Channel) error {
		if p.Kind == "exchange" {
			return c.ExchangeDeclare(p.Name, p.Type, true, false, false, false, nil)
		}
		arguments := amqp.Table{amqp.QueueTypeArg: p.Type}
		maps.Copy(arguments, p.Arguments)
		_, err := c.QueueDeclare(p.Name, true, false, false, false, arguments)
		return err
	})
}

func onChannel(conn *amqp.Connection, do func(*amqp.Channel) error) error {
	c, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := do(c); err != nil {
		return err
	}
	return c.Close()
}

// String is the part in words, for a person who would make it.
func (p Part) String() string {
	text := fmt.Sprintf("%-8s %s, durable, %s", p.Kind, p.Name, p.Type)
	for _, name := range slices.Sorted(maps.Keys(p.Arguments)) {
		text += fmt.Sprintf(", %s %#v", name, p.Arguments[name])
	}
	if p.Bound != "" {
		text += fmt.Sprintf(", bound to %s with the key #", p.Bound)
	}
	return text
}
