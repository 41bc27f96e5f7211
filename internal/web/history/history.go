// Package history remembers what a relay did in the last quarter of an hour, second by second, for plots. It lives in
// the process: a restart forgets it, and Prometheus is the place for more.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
)

const (
	// Interval is the time between two points.
	Interval = time.Second
	// Points is how many are kept: 15 minutes.
	Points = 900

	topicsEvery = 5  // points between two looks at topics
	topicsShown = 50 // the busiest
)

// Source provides the remembered figures; a *relay.Relay.
type Source interface {
	Counts() relay.Counts
	Status() relay.Status
	Topics() map[string]uint64
}

// Point is one interval. Names in JSON are stable. Rates are events per second, latencies seconds; a latency is null
// when no event was published.
type Point struct {
	At        int64    `json:"at"` // its end, Unix milliseconds
	Received  float64  `json:"received"`
	Published float64  `json:"published"`
	Settled   float64  `json:"settled"`
	Dead      float64  `json:"dead"`
	Marked    float64  `json:"marked"`
	Backlog   *int64   `json:"backlog"` // null, as what follows: not known
	InFlight  int      `json:"in_flight"`
	LagBytes  *int64   `json:"lag_bytes"`
	Lag       *float64 `json:"lag_seconds"` // age of the oldest event without an outcome, parked ones included
	Relay50   *float64 `json:"relay_p50"`
	Relay95   *float64 `json:"relay_p95"`
	Relay99   *float64 `json:"relay_p99"`
	Publish95 *float64 `json:"publish_p95"`
}

// Topic counts the events of one topic.
type Topic struct {
	Name  string  `json:"topic"`
	Rate  float64 `json:"per_second"` // lately
	Total uint64  `json:"total"`      // since the process started
}

// History is a ring of points.
type History struct {
	source Source
	stop   chan struct{}
	done   chan struct{}

	// Owned by run.
	before relay.Counts
	topics map[string]uint64 // at the last look
	asked  time.Time         // then

	mu      sync.Mutex
	ring    []Point // the oldest at next, once it is full; guarded by mu
	next    int     // guarded by mu
	busiest []Topic // guarded by mu
	others  int     // topics beside the busiest; guarded by mu
}

// Start begins to remember, until Stop.
func Start(source Source) *History {
	h := &History{source: source, stop: make(chan struct{}), done: make(chan struct{})}
	go h.run()
	return h
}

// Stop ends it.
func (h *History) Stop() {
	close(h.stop)
	<-h.done
}

func (h *History) run() {
	defer close(h.done)
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	h.before = h.source.Counts()
	h.lookAtTopics(time.Now())
	for last, n := time.Now(), 1; ; n++ {
		select {
		case <-ticker.C:
		case <-h.stop:
			return
		}
		now := time.Now()
		h.add(h.point(now, now.Sub(last)))
		last = now
		if n%topicsEvery == 0 {
			h.lookAtTopics(now)
		}
	}
}

func (h *History) point(now time.Time, took time.Duration) Point {
	counts, status := h.source.Counts(), h.source.Status()
	before := &h.before
	rate := func(now, before uint64) float64 { return float64(now-before) / took.Seconds() }
	p := Point{
		At: now.UnixMilli(), Received: rate(counts.Received, before.Received),
		Published: rate(counts.Published, before.Published),
		Settled:   rate(counts.Settled, before.Settled), Dead: rate(counts.Dead, before.Dead),
		Marked:  rate(counts.Marked, before.Marked),
		Backlog: status.Backlog, InFlight: status.InFlight, LagBytes: status.LagBytes, Lag: status.OldestPending,
	}
	if q, some := counts.Relay.Quantiles(&before.Relay, .5, .95, .99); some {
		p.Relay50, p.Relay95, p.Relay99 = &q[0], &q[1], &q[2]
	}
	if q, some := counts.Publish.Quantiles(&before.Publish, .95); some {
		p.Publish95 = &q[0]
	}
	h.before = counts
	return p
}

func (h *History) add(p Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) < Points {
		h.ring = append(h.ring, p)
		return
	}
	h.ring[h.next] = p
	h.next = (h.next + 1) % Points
}

func (h *History) lookAtTopics(now time.Time) {
	counts := h.source.Topics()
	took := now.Sub(h.asked).Seconds()
	topics := make([]Topic, 0, len(counts))
	for name, total := range counts {
		topics = append(topics, Topic{Name: name, Rate: float64(total-h.topics[name]) / took, Total: total})
	}
	slices.SortFunc(topics, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Name, b.Name))
	})
	h.topics, h.asked = counts, now
	h.mu.Lock()
	defer h.mu.Unlock()
	h.others = max(len(topics)-topicsShown, 0)
	h.busiest = topics[:len(topics)-h.others]
}

// All are the points, the oldest first.
func (h *History) All() []Point {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(h.ring[h.next:], h.ring[:h.next])
}

// Last is the newest point; false when there is none yet.
func (h *History) Last() (Point, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ring) == 0 {
		return Point{}, false
	}
	return h.ring[(h.next+len(h.ring)-1)%len(h.ring)], true
}

// Rates are the means of the latest points, at most n of them; nil when there is none yet.
func (h *History) Rates(n int) *relay.Rates {
	all := h.All()
	latest := all[max(len(all)-n, 0):]
	if len(latest) == 0 {
		return nil
	}
	r := relay.Rates{Seconds: Interval.Seconds() * float64(len(latest))}
	for _, p := range latest {
		r.Received, r.Published, r.Settled, r.Dead = r.Received+p.Received, r.Published+p.Published, r.Settled+p.Settled,
			r.Dead+p.Dead
		r.Marked += p.Marked
	}
	points := float64(len(latest))
	r.Received, r.Published, r.Settled, r.Dead = r.Received/points, r.Published/points, r.Settled/points, r.Dead/points
	r.Marked /= points
	return &r
}

// Topics are the busiest topics, and how many others there are.
func (h *History) Topics() (busiest []Topic, others int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.busiest), h.others
}
