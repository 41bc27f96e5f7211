package lanes

import "time"

// BreakerOptions say when the engine stops to hand out work.
type BreakerOptions struct {
	Outages    int // keys that fail by an outage, and none succeeds between
	Transients int // keys that begin to fail by whatever, and none succeeds between
	ProbeMin   time.Duration
	ProbeMax   time.Duration
	Deaths     int     // in DeathWindow, and
	DeathRatio float64 // of what was handled in it: more of both
	Window     time.Duration
}

// breaker stops the work when it is not the events' fault. Keys that have begun to fail, and no success between, put it
// in doubt: then events of other keys, which do not fail, are tried at once, one at a time, and a success ends the
// doubt. When some of those fail, too, or none comes for a while, it opens: one event is tried now and then, of
// whatever key, and still at once those of keys that do not fail, until some have. A success closes it. The engine's
// mutex guards it.
type breaker struct {
	options BreakerOptions
	failing map[Name]Failure // keys that have begun to fail since the last success
	doubt   bool
	tried   int       // probes that failed of keys that did not
	since   time.Time // of the doubt's first probe that failed
	until   time.Time // the doubt ends; zero: something runs or is ready that can end it
	open    bool
	reason  string
	probing bool
	next    time.Time // of the next probe
	delay   time.Duration

	windowFrom      time.Time
	handled, deaths int // in the window
}

// doubtful is how many events of keys that do not fail are tried, for no longer than patience, before the breaker
// opens.
const (
	doubtful = 20
	patience = 5 * time.Second
)

// wait is how long nothing is to be handed out; an hour stands for: until a probe has ended.
func (b *breaker) wait(now time.Time) time.Duration {
	switch {
	case b.probing:
		return time.Hour
	case !b.open:
		return 0
	}
	return b.next.Sub(now)
}

// spares reports whether keys that do not fail are tried at once.
func (b *breaker) spares() bool { return !b.probing && b.careful() && b.tried < doubtful }

// careful reports whether only probes are handed out.
func (b *breaker) careful() bool { return b.open || b.doubt }

// note takes a verdict on a lane. A key that goes on failing says nothing new, nor does what was running when the
// breaker opened.
func (b *breaker) note(l *Lane, v Verdict, probe bool, now time.Time) {
	if v.Success {
		clear(b.failing)
		b.open, b.doubt, b.reason, b.delay, b.tried = false, false, "", 0, 0
		b.count(now)
		b.handled += max(1, v.Decided)
	}
	if v.Failed == None {
		l.failing = l.failing && v.Decided == 0 && !v.Success
		return
	}
	known := l.failing
	l.failing = true
	switch {
	case b.careful() && probe && !known && b.tried < doubtful:
		if b.tried == 0 {
			b.since = now
		}
		if b.tried++; b.doubt && (b.tried == doubtful || now.Sub(b.since) > patience) {
			b.tried = doubtful
			b.trip(now.Add(b.options.ProbeMin))
		}
	case b.open && probe:
		b.delay = min(max(2*b.delay, b.options.ProbeMin), b.options.ProbeMax)
		b.next = now.Add(b.delay)
	case !b.careful() && !known:
		b.begins(l.Name, v.Failed)
	}
}

// begins takes a key that has begun to fail.
func (b *breaker) begins(name Name, why Failure) {
	if b.failing == nil {
		b.failing = map[Name]Failure{}
	}
	b.failing[name] = why
	outages := 0
	for _, f := range b.failing {
		if f == Outage {
			outages++
		}
	}
	switch {
	case outages >= b.options.Outages:
		b.suspect("outage: a dependency of the handlers or the inbox is unavailable")
	case len(b.failing) >= b.options.Transients:
		b.suspect("several keys fail, and no event succeeds")
	}
}

func (b *breaker) suspect(reason string) {
	b.doubt, b.tried, b.until, b.reason = true, 0, time.Time{}, reason
}

// idles is called in doubt when there is nothing that could end it.
func (b *breaker) idles(now time.Time) {
	switch {
	case b.until.IsZero():
		b.until = now.Add(b.options.ProbeMin)
	case !now.Before(b.until):
		b.trip(now)
	}
}

// trip opens the breaker. next is when the next probe is.
func (b *breaker) trip(next time.Time) {
	b.open, b.doubt = true, false
	b.delay = b.options.ProbeMin
	b.next = next
}

func (b *breaker) count(now time.Time) {
	if now.Sub(b.windowFrom) > b.options.Window {
		b.windowFrom, b.handled, b.deaths = now, 0, 0
	}
}

// MayDie asks whether an event may become a dead letter now. When there are too many, it may not: the breaker opens.
func (e *Engine) MayDie() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, now := &e.breaker, time.Now()
	if b.careful() {
		return false
	}
	b.count(now)
	deaths := b.deaths + 1
	if deaths > b.options.Deaths && float64(deaths) > b.options.DeathRatio*float64(b.handled+deaths) {
		b.suspect("too many dead letters")
		return false
	}
	b.deaths = deaths
	return true
}

// SetFull reports whether the table of parked events is full: then what would be parked behind others waits in memory.
func (e *Engine) SetFull(full bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := e.full && !full
	e.full = full
	if !changed {
		return
	}
	for _, p := range e.partitions {
		for _, l := range p.lanes {
			e.enqueue(l)
		}
	}
	e.cond.Broadcast()
}

// Full reports what SetFull has said.
func (e *Engine) Full() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.full
}

// Stats are the engine's figures now.
type Stats struct {
	Events, Bytes int
	Busy          int
	ParkedLanes   int
	BreakerOpen   bool
	BreakerReason string
}

// Stats are taken at one moment.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{
		Events: e.events, Bytes: e.bytes, Busy: e.busy,
		BreakerOpen: e.breaker.open,
	}
	if s.BreakerOpen {
		s.BreakerReason = e.breaker.reason
	}
	for _, p := range e.partitions {
		for _, l := range p.lanes {
			if l.parked {
				s.ParkedLanes++
			}
		}
	}
	return s
}
