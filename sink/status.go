package sink

import (
	"fmt"
	"time"
)

// State is the engine's condition.
type State uint8

// The states of the engine.
const (
	OK      State = iota // everything that was submitted is being sent, or waits for the submitter
	Stalled              // some records wait for transient trouble to pass: a broker, a partition or topic not diverted
	Blocked              // a person must act: authentication, TLS
)

// String is the state's name for people and metrics.
func (s State) String() string {
	return [...]string{"ok", "stalled", "blocked by configuration"}[s]
}

// Status is a snapshot of the engine. The numbers without a unit are records.
type Status struct {
	Events, Bytes int           // in the window: from Submit to Settled
	Pending       int           // of Events: without a result
	Unrecorded    int           // handed to the driver and not settled
	Waiting       int           // of Unrecorded: in batches that the driver does not have now, and gets again
	Oldest        time.Duration // age, since Submit, of the oldest record without a result
	HeldLanes     int
	Rerouted      uint64 // times that a topic's number of partitions changed

	State    State
	Reason   string // what it waits for, when not OK: the longest lasting trouble of the gravest kind
	Since    time.Time
	Troubles int // how many partitions and topics are in trouble

	// Throttle is the longest pause that a node has asked for lately: one of its limits is reached, such as a quota. 0:
	// none has.
	Throttle time.Duration
}

// throttle is a pause that a node asked for. There is no request to it before its end.
type throttle struct {
	pause time.Duration
	until time.Time
}

// throttledFor is for how long after its end a pause is told of: at a limit, the next answer asks for another.
const throttledFor = 5 * time.Second

// Filled is how much of the window, by events or bytes, and how much of MaxUnrecorded is in use, from 0 to 1; more with
// a record that is larger than the window.
func (e *Engine) Filled() (window, unrecorded float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	window = max(float64(e.events)/float64(e.config.MaxEvents), float64(e.bytes)/float64(e.config.MaxBytes))
	return window, float64(e.unrecorded) / float64(e.config.MaxUnrecorded)
}

// Status is a snapshot. It costs a walk over all partitions, not over records.
func (e *Engine) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Since(e.origin).Nanoseconds()
	s := Status{Events: e.events, Bytes: e.bytes, Unrecorded: e.unrecorded, Rerouted: e.rerouted}
	oldest := func(r *Record) {
		if r != nil {
			s.Oldest = max(s.Oldest, time.Duration(now-r.engine.since))
		}
	}
	for _, t := range e.throttled {
		if time.Since(t.until) < throttledFor {
			s.Throttle = max(s.Throttle, t.pause)
		}
	}
	for _, t := range e.topics {
		s.HeldLanes += len(t.held)
		s.Pending += t.queued + t.waiting.length
		oldest(t.waiting.head())
		if t.waiting.length > 0 && len(t.partitions) == 0 {
			s.blame(stateOf(troubleOf(t.err)), t.since, func() string {
				return because(t.unknown(), t.err)
			})
		}
		for _, p := range t.partitions {
			oldest(p.queue.head())
			if p.batch != nil {
				oldest(p.batch.Records[0])
				if !p.busy {
					s.Waiting += len(p.batch.Records)
				}
			}
			switch {
			case !p.hasWork() || p.since.IsZero():
			case p.diverted || t.diverted: // what was sent and has no answer waits there, and nothing else
				s.Troubles++
			default:
				s.blame(stateOf(p.kind), p.since, p.reason)
			}
		}
	}
	return s
}

// blame notes a trouble.
func (s *Status) blame(state State, since time.Time, reason func() string) {
	s.Troubles++
	if state > s.State || state == s.State && since.Before(s.Since) {
		s.State, s.Since, s.Reason = state, since, reason()
	}
}

func stateOf(kind Trouble) State {
	if kind == ConfigurationTrouble {
		return Blocked
	}
	return Stalled
}

func (p *partition) reason() string {
	if p.failures == 0 {
		return because(p.leaderless(), p.topic.err)
	}
	where := fmt.Sprintf("%s, failed attempts: %d", p.place(), p.failures)
	switch p.kind {
	case ClusterTrouble:
		return because("a broker or the network is unavailable ("+where+")", p.err)
	case ConfigurationTrouble:
		return because("the brokers do not take us ("+where+")", p.err)
	}
	return because(where, p.err)
}

// place is the partition in a text for people.
func (p *partition) place() string {
	if p.topic.word != "" {
		return p.topic.place()
	}
	return fmt.Sprintf("%s partition %d", p.topic.place(), p.number)
}

// leaderless and unknown say what the broker has not told of a partition and of a topic.
func (p *partition) leaderless() string {
	if p.topic.word != "" {
		return p.topic.place() + " is not available"
	}
	return p.place() + ": no leader is known"
}

func (t *topic) unknown() string {
	if t.word != "" {
		return t.place() + " is not available"
	}
	return t.place() + ": its partitions are not known"
}

func because(what string, err error) string {
	if err == nil {
		return what
	}
	return what + ": " + err.Error()
}
