package lanes

import "time"

// A partition is handed over at its offset, and what was decided above would come again. So a partition that goes
// fills its gaps first: what is below the last record that a job has had is handed out, nothing above it.

// Revoke hands out nothing more of the partitions but what fills their gaps, and that no longer than patience; the
// channels are closed when running jobs have ended. What they decide until then still counts: see Progress. Drop ends
// it.
func (e *Engine) Revoke(places []Place, patience time.Duration) []<-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	var idle []<-chan struct{}
	for _, at := range places {
		if p := e.partitions[at]; p != nil {
			e.fill(p, patience)
			idle = append(idle, p.idle)
		}
	}
	e.cond.Broadcast()
	return idle
}

// Drain is a Close that fills the gaps of all partitions, for no longer than patience.
func (e *Engine) Drain(patience time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed, e.filling = true, true
	for _, p := range e.partitions {
		e.fill(p, patience)
	}
	time.AfterFunc(patience, e.Close)
	e.cond.Broadcast()
}

func (e *Engine) fill(p *Partition, patience time.Duration) {
	if p.stopping {
		return
	}
	p.stopping, p.filling = true, patience > 0 && !e.breaker.open
	if p.filling {
		time.AfterFunc(patience, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			p.filling = false
			p.settleIdle()
		})
	}
	p.settleIdle()
}

// below counts the first items that are part of a gap.
func (p *Partition) below(items []Item) (n int) {
	for n < len(items) && items[n].seq < p.highest {
		n++
	}
	return n
}

// hasGap reports whether a lane that can be taken is part of one.
func (p *Partition) hasGap() bool {
	for _, l := range p.lanes {
		if l.ready && !l.over() {
			return true
		}
	}
	return false
}

// over reports whether nothing of the lane is to be handed out any more.
func (l *Lane) over() bool {
	p := l.partition
	return p.over() || p.filling && p.below(l.queue[:min(1, len(l.queue))]) == 0
}
