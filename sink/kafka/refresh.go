package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

	// answerPatience bounds how long a control request may take besides the dialling. Brokers answer it from memory; one
	// that does not is frozen, and another is asked.
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

// costShare bounds how much of the time it takes to ask for all topics: the pause until the next time is at least so
// many times as long as it took.
const costShare = 5

// rhythm is when all topics are asked for. Owned by refreshLoop.
type rhythm struct {
	last time.Time     // end of the last request, for whichever topics
	full time.Time     // end of the last one for all
	took time.Duration // by that one
	gap  time.Duration // while something is wrong
	next time.Time     // when all are asked for again
}

// earliest is when all may be asked for, at the pace of something that is wrong.
func (r *rhythm) earliest() time.Time {
	at, spared := r.last.Add(r.gap), r.full.Add(costShare*r.took)
	if spared.After(at) {
		return spared
	}
	return at
}

// asked takes in a request that began then, and what the brokers' answer says.
func (r *rhythm) asked(began time.Time, all, settled bool) {
	r.last = time.Now()
	if all {
		r.full, r.took = r.last, r.last.Sub(began)
	}
	switch at := r.earliest(); {
	case !settled && (all || at.Before(r.next)):
		r.next = at
	case all:
		r.next = r.last.Add(refreshInterval)
	}
}

// refreshLoop keeps the view true. It asks for the topics that someone asked for only, and before that only whether a
// broker answers. For topics that are new it asks at once, and for them alone.
func (d *Driver) refreshLoop() {
	r := rhythm{gap: refreshFirstPause}
	if d.config.lazy {
		r.next = time.Now().Add(refreshInterval)
	}
	timer := time.NewTimer(time.Until(r.next))
	defer timer.Stop()
	for {
		forced, all := false, true
		var wait time.Duration
		select {
		case <-d.ctx.Done():
			return
		case <-d.wake:
			forced, wait = true, time.Until(r.earliest())
		case <-d.fresh:
			forced, all, wait = true, false, time.Until(r.last.Add(r.gap))
		case <-timer.C:
		}
		if wait > 0 && pause(d.ctx, wait) != nil {
			return
		}
		began := time.Now()
		changed, settled := d.refresh(d.ctx, all)
		if r.last.IsZero() && !d.config.lazy && d.Reachable() {
			d.running.Go(d.producerAhead)
		}
		failed := d.lastFailure.Load()
		settled = settled && (failed == 0 || sinceStart(time.Now())-failed > int64(suspicion))
		if changed || settled && !forced {
			r.gap = refreshFirstPause
		} else {
			r.gap = min(2*r.gap, refreshLongestPause)
			d.askAnother()
		}
		r.asked(began, all, settled)
		timer.Reset(time.Until(r.next))
	}
}

// asksFor are the topics wanted, and those of them that are asked for: all, or only what is not known yet.
func (d *Driver) asksFor(all bool) (wanted, topics []string) {
	d.mu.Lock()
	wanted = d.wanted[:len(d.wanted):len(d.wanted)]
	d.mu.Unlock()
	if all {
		return wanted, wanted
	}
	known := d.view.Load().topics
	for i := len(wanted); i > 0 && known[wanted[i-1]] == nil; i-- { // the latest ones
		topics = wanted[i-1:]
	}
	return wanted, topics
}

// refresh asks for the topics wanted, or for those of them only that are new. It says whether anything changed and
// whether all is well now.
func (d *Driver) refresh(ctx context.Context, all bool) (changed, settled bool) {
	began := time.Now()
	wanted, topics := d.asksFor(all)
	if !all && len(topics) == 0 {
		return false, d.view.Load().settled(wanted, began)
	}
	r, err := d.describeCluster(ctx, append([]string{}, topics...)) // nil would mean all topics
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
	if all {
		d.told.Store(&began)
	}
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
	return nil, ofAddresses(problems)
}

// ofAddresses holds the error of each address that was asked. Its text is one line.
type ofAddresses []error

func (a ofAddresses) Error() string {
	return strings.ReplaceAll(errors.Join(a...).Error(), "\n", "; ")
}

func (a ofAddresses) Unwrap() []error { return a }

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
