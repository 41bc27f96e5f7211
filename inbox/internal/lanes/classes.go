package lanes

import "github.com/twmb/franz-go/pkg/kgo"

// Limits bound how many jobs have events of a class at once, so that slow ones leave workers to the others. Events of
// different classes are in different jobs. Class 0 has no bound.
type Limits struct {
	Most []int                 // jobs of class 1, 2, …
	Of   func(*kgo.Record) int // a record's class; nil: all are of class 0
}

// class is the events of one class. The engine's mutex guards it.
type class struct {
	ready    queue   // lanes whose next event is of the class
	strained queue   // those that fail or have parked events; the latter have no class
	turn     bool    // of the strained ones, where both are ready
	most     int     // jobs at once; 0: no bound
	jobs     int     // now, with those that Enter has let in
	perEvent float64 // seconds that a handler takes, smoothed
}

func newClasses(l Limits) []*class {
	all := []*class{{}}
	for _, most := range l.Most {
		all = append(all, &class{most: most})
	}
	return all
}

func (c *class) full() bool { return c.most > 0 && c.jobs >= c.most }

// classes are those of records.
func (l Limits) classes(records []*kgo.Record) []int {
	if l.Of == nil {
		return nil
	}
	all := make([]int, len(records))
	for i, r := range records {
		all[i] = l.Of(r)
	}
	return all
}

// class is that of a lane's next job.
func (e *Engine) class(l *Lane) int {
	if l.parked || len(l.queue) == 0 {
		return 0
	}
	return l.queue[0].class
}

// Enter asks whether parked events of a record's class may be handled now. Leave follows if so.
func (e *Engine) Enter(r *kgo.Record) (class int, may bool) {
	if e.options.Limits.Of == nil {
		return 0, true
	}
	class = e.options.Limits.Of(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.classes[class].full() {
		return class, false
	}
	e.classes[class].jobs++
	return class, true
}

// Leave ends what Enter began.
func (e *Engine) Leave(class int) {
	if e.options.Limits.Of == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.classes[class].jobs--
	e.cond.Broadcast()
}
