package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// unknownType is the label of all types that no handler has: their number has no bound.
const unknownType = "unknown"

// Metrics observes a consumer; package prom implements it. Methods are called from any goroutine, after the commit.
type Metrics interface {
	Processed(status, eventType string)
	Took(eventType string, d time.Duration) // a handler that was committed
	EndToEnd(d time.Duration)               // from the event's created_at to the commit of its effect
	Retried(eventType string)               // a failed attempt that another one follows
	HandlerNotFound()
	Redelivered()
	LockWait()
	Rebalanced(kind string) // assigned, revoked, lost
}

func (c *Consumer) metric(tell func(Metrics)) {
	if c.config.Metrics != nil {
		tell(c.config.Metrics)
	}
}

// Partition is the status of a partition that this process owns.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Next      int64  `json:"next_offset"` // everything below is decided
	Lag       int64  `json:"lag"`         // from there to the end that was seen last
	LagKnown  bool   `json:"lag_known"`   // one was
	Waiting   int    `json:"waiting"`     // events in memory
}

// Status is the status of a consumer: this process's share of the work, and counts of the database for all processes.
type Status struct {
	Consumer        string        `json:"consumer"`
	Partitions      []Partition   `json:"partitions"`
	LagMax          int64         `json:"lag_max"`
	LagKnown        bool          `json:"lag_known"` // of each partition, and there are some
	Inflight        int           `json:"inflight"`  // transactions that run
	Workers         int           `json:"workers"`
	Events          int           `json:"events"` // in memory
	OldestUnhandled time.Duration `json:"oldest_unhandled_ns"`
	LastProcessed   time.Time     `json:"last_processed"`
	ParkedEvents    int64         `json:"parked_events"`
	ParkedKeys      int64         `json:"parked_keys"`
	DeadLettersOpen int64         `json:"dead_letters_open"`
	CountsKnown     bool          `json:"counts_known"` // these three were counted
	BreakerOpen     bool          `json:"breaker_open"`
	BreakerReason   string        `json:"breaker_reason,omitempty"`
	HeartbeatAge    time.Duration `json:"heartbeat_age_ns"` // 0: no group yet
	Trouble         string        `json:"trouble,omitempty"`
}

// Status returns the current status without asking the database or the brokers.
func (c *Consumer) Status() Status {
	st := Status{Consumer: c.config.Name, Workers: c.config.Workers, Partitions: []Partition{}}
	c.mu.Lock()
	st.ParkedEvents, st.ParkedKeys, st.DeadLettersOpen = c.counts.ParkedEvents, c.counts.ParkedKeys, c.counts.DeadOpen
	st.CountsKnown = c.counted
	for _, what := range slices.Sorted(maps.Keys(c.down)) {
		st.Trouble += what + ": " + c.down[what].Error() + "\n"
	}
	c.mu.Unlock()
	if last := c.last.Load(); last != 0 {
		st.LastProcessed = time.Unix(0, last)
	}
	s := c.session.Load()
	if s == nil {
		return st
	}
	s.fill(&st, time.Now())
	return st
}

func (s *session) fill(st *Status, now time.Time) {
	known := true
	for _, p := range s.engine.Progress() {
		one := Partition{Topic: p.Place.Topic, Partition: p.Place.Partition, Next: p.Next, Waiting: p.Undecided}
		if one.LagKnown = p.Ended; p.Ended {
			one.Lag = p.Lag
		}
		known = known && p.Ended
		st.LagMax = max(st.LagMax, one.Lag)
		if p.OldestMillis > 0 {
			st.OldestUnhandled = max(st.OldestUnhandled, now.Sub(time.UnixMilli(p.OldestMillis)))
		}
		st.Partitions = append(st.Partitions, one)
	}
	slices.SortFunc(st.Partitions, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	st.LagKnown = known && len(st.Partitions) > 0
	stats := s.engine.Stats()
	st.Inflight, st.Events = stats.Busy, stats.Events
	st.BreakerOpen, st.BreakerReason = stats.BreakerOpen, stats.BreakerReason
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heartbeat.IsZero() {
		st.HeartbeatAge = now.Sub(s.heartbeat)
	}
}

// Live returns an error if the process should be restarted: a handler has run for more than twice HandlerTimeout.
// Heartbeats continue then, so the group does not notice.
func (c *Consumer) Live() error {
	s := c.session.Load()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.running {
		if !r.since.IsZero() && time.Since(r.since) > 2*c.config.HandlerTimeout {
			return fmt.Errorf("a handler has run for %v, and HandlerTimeout is %v",
				time.Since(r.since).Round(time.Second), c.config.HandlerTimeout)
		}
	}
	return nil
}

// Ready returns an error that explains why no events are handled now, such as no session with the database or the
// group, or an open breaker.
func (c *Consumer) Ready() error {
	st, s := c.Status(), c.session.Load()
	switch {
	case st.Trouble != "":
		return errors.New(st.Trouble)
	case s == nil:
		return errors.New("not running")
	case st.HeartbeatAge == 0:
		return errors.New("not in the group yet")
	case st.HeartbeatAge > s.sessionTime():
		return fmt.Errorf("no heartbeat was answered for %v", st.HeartbeatAge.Round(time.Second))
	case st.BreakerOpen:
		return fmt.Errorf("the breaker is open: %s", st.BreakerReason)
	}
	return nil
}

func (s *session) sessionTime() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// NotFoundMetrics is a [Metrics] that counts events without a handler by type, instead of HandlerNotFound.
type NotFoundMetrics interface {
	HandlerNotFoundFor(eventType string)
}

// mostTypes is how many types without a handler have a label of their own.
const mostTypes = 50

func (c *Consumer) notFound(m Metrics, eventType string) {
	by, is := m.(NotFoundMetrics)
	if !is {
		m.HandlerNotFound()
		return
	}
	c.mu.Lock()
	if !c.unhandled[eventType] && len(c.unhandled) < mostTypes {
		c.unhandled[eventType] = true
	}
	if !c.unhandled[eventType] {
		eventType = unknownType
	}
	c.mu.Unlock()
	by.HandlerNotFoundFor(eventType)
}

// report counts what was committed.
func (s *session) report(tasks []*task) {
	now := time.Now()
	s.c.last.Store(now.UnixNano())
	s.c.metric(func(m Metrics) {
		for _, t := range tasks {
			kind := t.m.Type
			if t.handler == nil {
				kind = unknownType
			}
			m.Processed(t.status, kind)
			switch t.status {
			case statusDone:
				m.Took(kind, t.took)
				if !t.m.CreatedAt.IsZero() {
					m.EndToEnd(now.Sub(t.m.CreatedAt))
				}
			case statusDuplicate:
				m.Redelivered()
			case statusIgnored:
				s.c.notFound(m, t.m.Type)
			}
		}
	})
}
