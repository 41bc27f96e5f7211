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

// retryPauses are the pauses of the retry queues that [Driver.Topology] makes, in order.
var retryPauses = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}

// Part is an exchange or a queue of a topology for consumers.
type Part struct {
	Kind      string         `json:"kind"` // exchange or queue
	Name      string         `json:"name"`
	Type      string         `json:"type"` // topic, or quorum
	Arguments map[string]any `json:"arguments,omitempty"`
	Bound     string         `json:"bound_to,omitempty"` // the exchange, with the key #
	Bindings  []Binding      `json:"bindings,omitempty"` // of a named consumer's queue
	Exists    bool           `json:"exists"`             // it was there before
	Warning   string         `json:"warning,omitempty"`  // about one that was there before
}

// singleActive is the argument of a queue that is delivered to one consumer at a time. Without it RabbitMQ hands the
// messages of a consumer that froze to another one, and the first goes on with them when it wakes.
const singleActive = "x-single-active-consumer"

// Binding routes an exchange's messages to a queue.
type Binding struct {
	Exchange string `json:"exchange"`
	Key      string `json:"key"`
}

// DifferentError reports that something is there under a name of the topology and is not as it would be made. Nothing
// was made or changed.
type DifferentError struct{ Differences []string }

func (e *DifferentError) Error() string {
	return "existing objects differ from those to create; nothing was created or changed:\n  " +
		strings.Join(e.Differences, "\n  ") +
		"\nDelete what is not needed, once it is empty, or keep your own topology and do without this one"
}

// parts are the topology of an exchange: all that it sends goes to the work queue. A consumer puts what it could not
// handle into a retry queue, from which it comes back to the work queue when the pause is over, and what it gives up
// into the dead-letter queue.
func parts(exchange string) []Part {
	work, dead := exchange+".work", exchange+".dead"
	list := []Part{exchangePart(exchange), queuePart(dead, "", 0)}
	for _, pause := range retryPauses {
		list = append(list, queuePart(fmt.Sprintf("%s.retry.%dm", exchange, pause/time.Minute), work, pause))
	}
	own := queuePart(work, dead, 0)
	own.Bound = exchange
	return append(list, own)
}

func exchangePart(name string) Part {
	return Part{Kind: "exchange", Name: name, Type: amqp.ExchangeTopic}
}

// queuePart is a queue whose rejected and expired messages go to the queue next; expire 0 is never. Queues are of
// quorum type, refuse when they are full instead of dropping the oldest, and hand on what expires or is rejected at
// least once.
func queuePart(name, next string, expire time.Duration) Part {
	arguments := map[string]any{"x-overflow": amqp.QueueOverflowRejectPublish}
	if next != "" {
		// The default exchange: other queues behind the exchange do not get a retried message once more.
		arguments["x-dead-letter-exchange"], arguments["x-dead-letter-routing-key"] = "", next
		arguments["x-dead-letter-strategy"] = "at-least-once"
	}
	if expire > 0 {
		arguments["x-message-ttl"] = expire.Milliseconds()
	}
	return Part{Kind: "queue", Name: name, Type: amqp.QueueTypeQuorum, Arguments: arguments}
}

// Topology creates what the consumers of [Config] need and is not there: exchanges, and for each consumer its queue,
// retry queues and a dead-letter queue. Without named consumers there is one queue behind the given exchange, .work. It
// leaves alone what is there; if something has other settings, it creates nothing and the error is a *DifferentError.
// A queue whose only difference is that it lacks x-single-active-consumer has a Warning. With dryRun it only looks.
func (d *Driver) Topology(ctx context.Context, exchange string, dryRun bool) ([]Part, error) {
	list := parts(exchange)
	if len(d.config.Consumers) > 0 {
		list = partsOf(d.config.Consumers)
	}
	return d.create(ctx, list, dryRun)
}

// create makes the parts that are missing, if those that are there are as they would be made.
func (d *Driver) create(ctx context.Context, list []Part, dryRun bool) ([]Part, error) {
	conn, _, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.endWith(ctx)()
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
		bindings := p.Bindings
		// A binding cannot be asked for. One that a person has changed on purpose is left alone.
		if p.Bound != "" && !(p.Exists && list[0].Exists) {
			bindings = []Binding{{p.Bound, "#"}}
		}
		for _, b := range bindings {
			if err == nil { // one that is there already stays as it is
				err = onChannel(conn, func(c *amqp.Channel) error { return c.QueueBind(p.Name, b.Key, b.Exchange, false, nil) })
			}
		}
		if err != nil {
			return nil, fmt.Errorf("create %s %s: %w%s", p.Kind, p.Name, err, advice(err))
		}
	}
	return list, nil
}

// advice returns the fix for the refusal.
func advice(err error) string {
	var said *amqp.Error
	if errors.As(err, &said) && said.Code == amqp.AccessRefused {
		return ": the user needs the permission to configure, write and read these names (rabbitmqctl set_permissions); " +
			"what was created before stays, and it is safe to run this again"
	}
	return ""
}

// look finds out whether the part is there, and as it would be made.
func (p *Part) look(conn *connection) error {
	if err := p.find(conn); err != nil || !p.Exists {
		return err
	}
	err := p.declare(conn) // compares, since it is there
	var said *amqp.Error
	if !errors.As(err, &said) || said.Code != amqp.PreconditionFailed || p.Arguments[singleActive] != true ||
		!strings.Contains(said.Reason, singleActive) {
		return err
	}
	delete(p.Arguments, singleActive)
	if err := p.declare(conn); err != nil {
		return err
	}
	p.Warning = fmt.Sprintf("queue %s has no %s, so a consumer that freezes can disturb the order of a key. Arguments of "+
		"a queue cannot be changed: stop the relay, let the consumer empty the queue, stop it, and run rabbitmqctl "+
		"delete_queue %s and cdc-relay init --rabbitmq-topology", p.Name, singleActive, p.Name)
	return nil
}

// find finds out whether the part is there, whatever its settings are, which takes no right. What is missing is an
// error to RabbitMQ, which closes the channel, so each question has its own.
func (p *Part) find(conn *connection) error {
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
	p.Exists = err == nil
	return err
}

// declare makes the part, or compares it with what is there.
func (p *Part) declare(conn *connection) error {
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

func onChannel(conn *connection, do func(*amqp.Channel) error) error {
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
	for _, b := range p.Bindings {
		text += fmt.Sprintf(", bound to %s with the key %s", b.Exchange, b.Key)
	}
	return text
}
