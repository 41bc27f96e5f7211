package lanes

import "time"

// BreakerOptions say when the engine stops to hand out work.
type BreakerOptions struct {
	Outages    int // keys that fail by an outage, and none succeeds between
	Transients int // keys that fail by whatever, and none succeeds between
	ProbeMin   time.Duration
	ProbeMax   time.Duration
	Deaths     int     // in DeathWindow, and
	DeathRatio float64 // of what was handled in it: more of both
	Window     time.Duration
}

// breaker stops the work when it is not the events' fault. While it is open, one event at a time is tried; a success
// closes it. The engine's mutex guards it.
type breaker struct {
	options BreakerOptions
	failing map[Name]Failure // since the last success
	open    bool
	reason  string
	probing bool
	next    time.Time // of the next probe
	delay   time.Duration

	windowFrom      time.Time
	handled, deaths int // in the window
}

// wait is how long nothing is to be handed out; an hour stands for: until a probe has ended.
func (b *breaker) wait(now time.Time) time.Duration {
	switch {
	case !b.open:
		return 0
	case b.probing:
		return time.Hour
	}
	return b.next.Sub(now)
}

// note takes a verdict. Of what was running when the breaker opened a failure says nothing new.
func (b *breaker) note(name Name, v Verdict, probe bool, now time.Time) {
	if v.Success {
		clear(b.failing)
		b.open, b.reason, b.delay = false, "", 0
		b.count(now)
		b.handled += max(1, v.Decided)
	}
	if v.Failed == None {
		return
	}
	if b.open && !probe {
		return
	}
	if b.open {
		b.delay = min(max(2*b.delay, b.options.ProbeMin), b.options.ProbeMax)
		b.next = now.Add(b.delay)
		return
	}
	if b.failing == nil {
		b.failing = map[Name]Failure{}
	}
	b.failing[name] = v.Failed
	outages := 0
	for _, f := range b.failing {
		if f == Outage {
			outages++
		}
	}
	switch {
	case outages >= b.options.Outages:
		b.trip("outage: what the handlers or the inbox need is away", now)
	case len(b.failing) >= b.options.Transients:
		b.trip("several keys fail, and no event succeeds", now)
	}
}

func (b *breaker) trip(reason string, now time.Time) {
	b.open, b.reason = true, reason
	b.delay = b.options.ProbeMin
	b.next = now.Add(b.delay)
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
	if b.open {
		return false
	}
	b.count(now)
	deaths := b.deaths + 1
	if deaths > b.options.Deaths && float64(deaths) > b.options.DeathRatio*float64(b.handled+deaths) {
		b.trip("too many dead letters", now)
		return false
	}
	b.deaths = deaths
	return true
}

// SetFull says whether the table of parked events is full: then what would be parked behind others waits in memory.
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
		BreakerOpen: e.breaker.open, BreakerReason: e.breaker.reason,
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
