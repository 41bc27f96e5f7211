package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
	"github.com/cdc-relay/cdc-relay/inbox/internal/source"
)

// Source is a broker other than Kafka, with the topics to read: see packages nats, redis and rabbitmq. Each topic is
// one partition, number 0, which one process reads at a time.
type Source = source.Source

const (
	// lease is how long a process that has died or is frozen keeps others from a topic. The events' rows are the fence:
	// if two read a topic, each effect still happens once and in order.
	lease       = 5 * time.Second
	holdEvery   = time.Second
	settleEvery = 20 * time.Millisecond
	readPaused  = 10 * time.Millisecond // how long a topic that has enough in memory is left alone
)

// readers is the feed of a [Source]: for each topic a goroutine that takes it, and one that reads it.
type readers struct {
	*session
	source source.Source

	mine  sync.Mutex
	open  map[lanes.Place]source.Topic // kept beyond run's end, to settle what is decided until then
	full  map[lanes.Place]bool         // enough of it is in memory
	heard map[string]time.Time         // when a topic was last held, or found held by another process
	idle  map[string]bool              // it was said that another process reads it
}

func newReaders(s *session, from source.Source) *readers {
	return &readers{session: s, source: from, open: map[lanes.Place]source.Topic{}, full: map[lanes.Place]bool{},
		heard: map[string]time.Time{}, idle: map[string]bool{}}
}

func (f *readers) system() string { return f.source.System() }

func (f *readers) dial() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timeout = lease
	return nil
}

func (f *readers) run(ctx context.Context) {
	var topics sync.WaitGroup
	for _, topic := range f.source.Topics() {
		topics.Go(func() { f.serve(ctx, topic) })
	}
	topics.Wait()
}

// leave closes what was kept open.
func (f *readers) leave() {
	f.mine.Lock()
	defer f.mine.Unlock()
	for _, topic := range f.open {
		topic.Close()
	}
}

var (
	errHeld  = source.ErrHeld
	errTaken = errors.New("another process has taken the topic over: this one did not answer in time")
)

// serve reads a topic whenever no other process does.
func (f *readers) serve(ctx context.Context, topic string) {
	what, pause := "reading "+topic, firstPause
	for {
		began := time.Now()
		err := f.once(ctx, topic)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		wait := pause
		switch {
		case errors.Is(err, errHeld):
			f.heardOf(topic, began)
			f.c.setDown(what, nil)
			f.standBy(topic, err)
			wait, pause = holdEvery, firstPause
		case errors.Is(err, ledger.ErrSetBack):
			f.fail(err)
			return
		case err != nil:
			if !f.c.setDown(what, err) {
				f.c.config.Log.Warn("inbox: "+what, "consumer", f.c.config.Name, "error", err)
			}
			pause = min(2*pause, lastPause/4)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// standBy says once that another process reads a topic.
func (f *readers) standBy(topic string, why error) {
	f.mine.Lock()
	said := f.idle[topic]
	f.idle[topic] = true
	f.mine.Unlock()
	if !said {
		f.c.config.Log.Info("inbox: standing by", "consumer", f.c.config.Name, "topic", topic, "because", why)
	}
}

// heardOf notes when a topic was known to be this process's, or another one's.
func (f *readers) heardOf(topic string, at time.Time) {
	f.mine.Lock()
	f.heard[topic] = at
	oldest := at
	for _, name := range f.source.Topics() {
		if f.heard[name].Before(oldest) {
			oldest = f.heard[name]
		}
	}
	f.mine.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heartbeat = oldest
}

// once takes the topic and reads it, until that is over.
func (f *readers) once(ctx context.Context, name string) error {
	at := lanes.Place{Topic: name}
	held, err := f.ledger.Held(ctx, f.holder, ledger.Place(at), lease)
	if err == nil && held {
		err = errHeld
	}
	if err != nil {
		return err
	}
	topic, err := f.source.Open(ctx, name)
	if err != nil {
		return err
	}
	next, err := f.take(ctx, at, topic)
	if err != nil {
		topic.Close()
		return err
	}
	f.mine.Lock()
	f.open[at] = topic
	f.mine.Unlock()
	f.c.setDown("reading "+name, nil)
	f.c.metric(func(m Metrics) { m.Rebalanced("assigned") })
	err = f.follow(ctx, at, topic, next)
	if ctx.Err() != nil {
		return ctx.Err() // the session ends the work on it, and leave closes it
	}
	if errors.Is(err, errTaken) {
		f.c.metric(func(m Metrics) { m.Rebalanced("lost") })
		f.lose([]lanes.Place{at})
	} else {
		f.c.metric(func(m Metrics) { m.Rebalanced("revoked") })
		f.handOver([]lanes.Place{at}, f.c.config.Grace)
	}
	f.mine.Lock()
	delete(f.open, at)
	f.mine.Unlock()
	topic.Close()
	return err
}

// take begins the partition, if no other process has it: offset first, then parked lanes, then records.
func (f *readers) take(ctx context.Context, at lanes.Place, topic source.Topic) (next int64, err error) {
	bounded, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	asked := time.Now()
	bounds, err := topic.Bounds(bounded, 0)
	if err != nil {
		return 0, err
	}
	p := ledger.Partition{Place: ledger.Place(at), TopicID: bounds.ID, Next: bounds.First}
	start, held, err := f.ledger.Take(bounded, f.holder, p, lease)
	if err == nil && held {
		err = errHeld
	}
	if err != nil {
		return 0, err
	}
	f.heardOf(at.Topic, asked)
	names, err := f.parkedLanes(bounded, []ledger.Place{p.Place})
	if err != nil {
		return 0, err
	}
	wrote := p.Next
	if start.Known {
		wrote = start.Next
	}
	if start.Former > 0 {
		f.remade(at, start.FormerID, start.Former)
	}
	if next = wrote; f.source.Queue() {
		next = max(next, bounds.First) // offsets of a queue are numbers of this process's own
	}
	f.mu.Lock()
	f.topicIDs[at.Topic] = bounds.ID
	f.mu.Unlock()
	f.lostRecords(at, 0)
	f.begin(at, next, wrote, names[at], start.Unclean, false)
	f.mine.Lock()
	delete(f.full, at)
	f.mine.Unlock()
	return next, nil
}

// follow feeds the engine until the context ends, the topic fails, or another process has taken it.
func (f *readers) follow(ctx context.Context, at lanes.Place, topic source.Topic, next int64) error {
	if err := f.look(ctx, at, topic); err != nil {
		return err
	}
	if err := topic.Seek(ctx, next); err != nil {
		return err
	}
	f.mine.Lock()
	delete(f.idle, at.Topic)
	f.mine.Unlock()
	reading, end := context.WithCancelCause(ctx)
	defer end(nil)
	var reader sync.WaitGroup
	reader.Go(func() { end(f.read(reading, at, topic)) })
	hold, settle, ask := time.NewTicker(holdEvery), time.NewTicker(settleEvery), time.NewTicker(askEvery)
	defer hold.Stop()
	defer settle.Stop()
	defer ask.Stop()
	for reading.Err() == nil {
		var err error
		select {
		case <-reading.Done():
		case <-hold.C:
			err = f.hold(reading, at)
		case <-ask.C:
			err = f.look(reading, at, topic)
		case <-settle.C:
			if f.source.Queue() {
				err = f.settle(at, topic)
			}
		}
		if err != nil {
			end(err)
		}
	}
	reader.Wait()
	return context.Cause(reading)
}

// read feeds the engine.
func (f *readers) read(ctx context.Context, at lanes.Place, topic source.Topic) error {
	for ctx.Err() == nil {
		if f.isFull(at) {
			select {
			case <-ctx.Done():
			case <-time.After(readPaused):
			}
			continue
		}
		records, err := topic.Next(ctx)
		if err != nil {
			return err
		}
		f.engine.Feed(at, records, 0)
	}
	return ctx.Err()
}

// isFull reports whether the partition has enough in memory.
func (f *readers) isFull(at lanes.Place) bool {
	f.mine.Lock()
	defer f.mine.Unlock()
	f.engine.Pressure(
		func(full []lanes.Place) {
			for _, p := range full {
				f.full[p] = true
			}
		},
		func(free []lanes.Place) {
			for _, p := range free {
				delete(f.full, p)
			}
		})
	return f.full[at]
}

// hold says that this process reads the topic. While the database does not answer, no other one can take it, either.
func (f *readers) hold(ctx context.Context, at lanes.Place) error {
	bounded, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	asked := time.Now()
	mine, err := f.ledger.Hold(bounded, f.holder, ledger.Place(at))
	switch {
	case errors.Is(err, ledger.ErrSetBack):
		f.fail(err)
		return err
	case err != nil:
		return nil // session.note says so
	case !mine:
		return errTaken
	}
	f.heardOf(at.Topic, asked)
	return nil
}

// look asks how the topic stands.
func (f *readers) look(ctx context.Context, at lanes.Place, topic source.Topic) error {
	next, here := f.engine.Fetched(at)
	if !here {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	bounds, err := topic.Bounds(bounded, next)
	if err != nil {
		return err
	}
	if f.topicID(at.Topic) != bounds.ID { // the offsets are none of the other one's
		err := fmt.Errorf("topic %s: %w", at.Topic, errTopic)
		f.fail(err)
		return err
	}
	if bounds.Back {
		f.remade(at, bounds.ID, next)
		if err := f.ledger.Rewind(bounded, ledger.Place(at), bounds.First); err != nil {
			return err
		}
		return fmt.Errorf("topic %s: %w", at.Topic, errTopic)
	}
	if bounds.Unread >= 0 {
		f.engine.Left(at, bounds.Unread)
	}
	if bounds.End >= 0 {
		f.sees(at, bounds.End)
		f.ended(at, bounds.End)
	}
	f.missing(at, next, bounds)
	return nil
}

// missing reports records that the topic has lost before they were read.
func (f *readers) missing(at lanes.Place, next int64, bounds source.Bounds) {
	f.mu.Lock()
	known := f.gone[at] >= bounds.First
	f.gone[at] = max(f.gone[at], bounds.First)
	f.mu.Unlock()
	if bounds.Lost == 0 || known {
		return
	}
	log := f.c.config.Log.With("consumer", f.c.config.Name, "topic", at.Topic, "from", next, "to", bounds.First-1)
	if bounds.Lost == source.Unknown {
		log.Error("inbox: the topic may have lost records before they were read: the last one that was read is gone, too. " +
			"Whether others are is unknown; their effects would be missing")
		return
	}
	log.Error("inbox: the topic has lost records before they were read: its limits or an administrator deleted them. "+
		"Their effects are missing", "at most", bounds.Lost)
	f.lostRecords(at, bounds.Lost)
}

func (f *readers) settle(at lanes.Place, topic source.Topic) error {
	next, above, here := f.engine.Above(at)
	if !here {
		return nil
	}
	return topic.Settle(next, above)
}

// tell settles what is decided of queues. Logs are told nothing: their offsets are in the database.
func (f *readers) tell(_ context.Context, next map[lanes.Place]int64) error {
	if !f.source.Queue() {
		return nil
	}
	f.mine.Lock()
	defer f.mine.Unlock()
	var failed error
	for at := range next {
		if topic := f.open[at]; topic != nil {
			failed = errors.Join(failed, f.settle(at, topic))
		}
	}
	return failed
}
