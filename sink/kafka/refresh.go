package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/connect"
)

const (
	// refreshInterval is how often the leaders are asked for when nothing is wrong.
	refreshInterval = 5 * time.Second

	// While something is wrong they are asked for at once, then with pauses that double from the first to the second.
	refreshFirstPause   = 10 * time.Millisecond
	refreshLongestPause = 500 * time.Millisecond

	// suspicion is how long something counts as wrong after a request without an answer, or after a topic went away: a
	// cluster needs that long to notice that a broker is gone (broker.session.timeout.ms, 9 s) and names it as the leader
	// until then.
	suspicion = 12 * time.Second

	// answerPatience is how long a control request may take besides the dialling. Brokers answer it from memory; one that
	// does not is frozen, and another is asked.
	answerPatience = 2 * time.Second
)

func (d *Driver) controlTimeout() time.Duration { return d.config.DialTimeout + answerPatience }

// refreshSoon makes refreshLoop ask now.
func (d *Driver) refreshSoon() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// refreshLoop keeps the view true. It asks for the topics that somebody asked for only, and before that only whether a
// broker answers.
func (d *Driver) refreshLoop() {
	var last time.Time
	gap := refreshFirstPause
	first := time.Duration(0)
	if d.config.lazy {
		first = refreshInterval
	}
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		forced := false
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
			forced = true
			if wait := gap - time.Since(last); wait > 0 && pause(d.ctx, wait) != nil {
				return
			}
		case <-timer.C:
		}
		changed, settled := d.refresh(d.ctx)
		if last.IsZero() && !d.config.lazy && d.Reachable() {
			d.running.Go(d.producerAhead)
		}
		last = time.Now()
		settled = settled && last.Sub(time.Unix(0, d.lastFailure.Load())) > suspicion
		if changed || settled && !forced {
			gap = refreshFirstPause
		} else {
			gap = min(2*gap, refreshLongestPause)
			d.askAnother()
		}
		if settled {
			timer.Reset(refreshInterval)
		} else {
			timer.Reset(gap)
		}
	}
}

// refresh asks for the topics wanted. It says whether anything changed and whether all is well now.
func (d *Driver) refresh(ctx context.Context) (changed, settled bool) {
	began := time.Now()
	d.mu.Lock()
	wanted := d.wanted
	d.mu.Unlock()
	r, err := d.describeCluster(ctx, append([]string{}, wanted...)) // nil would mean all topics
	if err != nil {
		if ctx.Err() == nil {
			silent := silence{began, err}
			if before := d.trouble.Load(); before != nil {
				silent.since = before.since
			}
			d.trouble.Store(&silent)
			d.stats.metadataFailures.Add(1)
			if d.config.Hooks.MetadataFailed != nil {
				d.config.Hooks.MetadataFailed(err)
			}
		}
		return false, false
	}
	d.trouble.Store(nil)
	if len(wanted) == 0 {
		return false, true
	}
	var was, is *view
	var n news
	for published := false; !published; published = d.publish(was, is) {
		was = d.view.Load()
		is, n = was.advance(r, time.Now())
	}
	d.told.Store(&began)
	d.announce(n)
	d.dropEndpoints(is)
	d.learnSoon(wanted)
	d.createSoon(is, wanted)
	return was.changed != is.changed, is.settled(wanted, time.Now())
}

// createSoon makes createLoop look for topics that do not exist.
func (d *Driver) createSoon(v *view, wanted []string) {
	if !slices.ContainsFunc(wanted, func(t string) bool { return v.topics[t].neverSeen() }) {
		return
	}
	select {
	case d.create <- struct{}{}:
	default:
	}
}

func (d *Driver) announce(n news) {
	for _, m := range n.moves {
		d.stats.leaderMoves.Add(1)
		if d.config.Hooks.LeaderMoved != nil {
			d.config.Hooks.LeaderMoved(m.topic, m.partition, m.from, m.to)
		}
	}
	for _, r := range n.resizes {
		d.raise(sink.Alarm{Kind: sink.AlarmPartitionChanged, Topic: r.topic, Partition: sink.WholeTopic, Text: fmt.Sprintf(
			"the topic has %d partitions instead of %d: keys may be in another partition from now on, and the order of a key "+
				"holds within each of the two",
			r.to, r.from)})
	}
}

// dropEndpoints closes the connections to addresses that are no broker's any more.
func (d *Driver) dropEndpoints(v *view) {
	keep := make(map[string]bool, len(v.nodes)+len(d.config.Brokers))
	for _, a := range v.nodes {
		keep[a] = true
	}
	for _, a := range d.config.Brokers {
		keep[a] = true
	}
	var gone []*endpoint
	d.mu.Lock()
	for a, e := range d.endpoints {
		if !keep[a] {
			gone = append(gone, e)
			delete(d.endpoints, a)
		}
	}
	d.mu.Unlock()
	for _, e := range gone {
		e.Close()
	}
}

// describeCluster asks a broker for the cluster and the topics.
func (d *Driver) describeCluster(ctx context.Context, topics []string) (*metadata.Response, error) {
	answer, err := d.ask(ctx, connect.Direct{Message: &metadata.Request{TopicNames: topics}})
	if err != nil {
		return nil, fmt.Errorf("ask for partitions and leaders: %w", err)
	}
	return answer.(*metadata.Response), nil
}

// ask sends a control request to one broker after the other until one answers: first the one that answered last, then
// those that the cluster named, then those of the configuration.
func (d *Driver) ask(ctx context.Context, request protocol.Message) (protocol.Message, error) {
	var problems []error
	for _, address := range d.candidates() {
		attempt, cancel := context.WithTimeout(ctx, d.controlTimeout())
		answer, err := d.endpoint(address).RoundTrip(attempt, request)
		cancel()
		if err == nil {
			d.mu.Lock()
			d.good = address
			d.mu.Unlock()
			return answer, nil
		}
		d.askAnother()
		if d.ctx.Err() != nil {
			return nil, errClosed
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", address, context.Cause(ctx))
		}
		problems = append(problems, fmt.Errorf("%s: %w", address, err))
	}
	return nil, errors.Join(problems...)
}

// askAnother makes the next control request begin with any broker: the one that answered last may be cut off from the
// others and tell what was true long ago.
func (d *Driver) askAnother() {
	d.mu.Lock()
	d.good = ""
	d.mu.Unlock()
}

func (d *Driver) candidates() []string {
	d.mu.Lock()
	good := d.good
	d.mu.Unlock()
	list := make([]string, 0, 8)
	seen := make(map[string]bool, 8)
	add := func(a string) {
		if a != "" && !seen[a] {
			seen[a] = true
			list = append(list, a)
		}
	}
	add(good)
	for _, a := range d.view.Load().nodes {
		add(a)
	}
	for _, a := range d.config.Brokers {
		add(a)
	}
	return list
}
