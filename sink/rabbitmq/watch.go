package rabbitmq

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// watchEvery is the pause between two looks at the consumers' queues.
	watchEvery = 5 * time.Second
	// watchFresh is for how long a figure is shown. A queue that no one could look at since then may hold anything.
	watchFresh = 3 * watchEvery
)

// watcher looks at the consumers' queues by passive declarations, for which no right is needed.
//
// It has a connection of its own. RabbitMQ stops reading from connections that publish while its memory or disk is
// short, and then a question on the publishing connection would have no answer.
type watcher struct {
	driver *Driver
	begin  sync.Once
	conn   *connection // of the goroutine that watches

	mu   sync.Mutex           // guards what follows
	seen map[string]queueLook // by queue
}

// queueLook is a queue as it was at a time. One that is missing has the time only.
type queueLook struct {
	at                  time.Time
	there               bool
	messages, consumers int64
}

var _ sink.QueueWatcher = (*Driver)(nil)

// Queues implements [sink.QueueWatcher].
func (d *Driver) Queues() []sink.ConsumerQueues {
	if len(d.config.Consumers) == 0 {
		return nil
	}
	w := &d.queues
	w.begin.Do(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.ended.Err() == nil {
			d.watch.Go(w.run)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	known := func(queue string, pick func(queueLook) int64) *int64 {
		look := w.seen[queue]
		if !look.there || time.Since(look.at) > watchFresh {
			return nil
		}
		n := pick(look)
		return &n
	}
	messages := func(l queueLook) int64 { return l.messages }
	list := make([]sink.ConsumerQueues, 0, len(d.config.Consumers))
	for _, c := range d.config.Consumers {
		retrying := new(int64)
		for _, name := range c.retryQueues() {
			n := known(name, messages)
			if n == nil {
				retrying = nil
				break
			}
			*retrying += *n
		}
		list = append(list, sink.ConsumerQueues{
			Consumer: c.Name, Messages: known(c.Name, messages), Retrying: retrying, Dead: known(c.DeadLetters, messages),
			Consumers: known(c.Name, func(l queueLook) int64 { return l.consumers }),
		})
	}
	return list
}

// retryQueues are their names, each once.
func (c Consumer) retryQueues() (names []string) {
	for _, r := range c.Retries {
		if !slices.Contains(names, r.Queue) {
			names = append(names, r.Queue)
		}
	}
	return names
}

// run looks until the driver is closed.
func (w *watcher) run() {
	defer func() {
		if w.conn != nil {
			w.conn.end()
		}
	}()
	pause := time.NewTicker(watchEvery)
	defer pause.Stop()
	for {
		w.look(w.driver.ended)
		select {
		case <-pause.C:
		case <-w.driver.ended.Done():
			return
		}
	}
}

// look asks for every queue. What has no answer in time keeps its last one, until that is too old to be shown.
func (w *watcher) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.driver.config.RequestTimeout)
	defer cancel()
	if w.conn == nil || w.conn.IsClosed() {
		conn, err := w.driver.config.dial()
		if err != nil {
			return // the driver's own connection has the same trouble, and says so
		}
		w.conn = conn
	}
	// A queue without a leader does not answer.
	defer w.conn.endWith(ctx)()
	for _, c := range w.driver.config.Consumers {
		for _, name := range append([]string{c.Name, c.DeadLetters}, c.retryQueues()...) {
			if !w.ask(name) {
				return
			}
		}
	}
}

// ask looks at one queue. False: the connection is of no use any more.
func (w *watcher) ask(name string) bool {
	look := queueLook{at: time.Now()}
	err := onChannel(w.conn, func(c *amqp.Channel) error {
		q, err := c.QueueDeclarePassive(name, true, false, false, false, nil)
		look.there, look.messages, look.consumers = err == nil, int64(q.Messages), int64(q.Consumers)
		return err
	})
	said, answered := errors.AsType[*amqp.Error](err)
	missing := answered && said.Code == amqp.NotFound
	if err != nil && !missing {
		return !w.conn.IsClosed()
	}
	w.mu.Lock()
	before, known := w.seen[name]
	w.seen[name] = look
	w.mu.Unlock()
	if tell := w.driver.config.QueueSeen; tell != nil && (!known && missing || known && before.there != look.there) {
		tell(name, look.there)
	}
	return true
}
