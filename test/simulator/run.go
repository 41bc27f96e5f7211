package simulator

import (
	"fmt"
	"io"
	"time"
)

const (
	// drainPatience is how much fake time everything may take to be published, recorded and confirmed once all trouble has
	// ended (J9); the longest pauses of the relay are a minute and a half.
	drainPatience = 3 * time.Minute
	// stopPatience is how much fake time a stop may take.
	stopPatience = 30 * time.Second
	look         = 50 * time.Millisecond
)

// Failure is a violated invariant, with what led to it.
type Failure struct {
	Seed  uint64
	What  string
	Story string // the last steps
}

func (f *Failure) Error() string {
	return fmt.Sprintf("seed %d: %s\n\nthe last steps:\n%s", f.Seed, f.What, f.Story)
}

// Options say how to play a seed.
type Options struct {
	Kind   string // one of Kinds; empty: Kafka
	Mutant string // one of Mutants; empty: none
	// gets each step as it happens, for one that ends in a panic; nil: only a failure tells its last steps
	Aloud io.Writer
	// a real Postgres with package store beside the made-up tables, for one seed after the other; nil: none
	real func(*world) reality
}

// Run plays one seed in the bubble of testing/synctest that it is called in, and adds to the counts.
func Run(seed uint64, o Options, counts *Counts) error {
	w := &world{seed: seed, profile: choose(seed), mutant: o.Mutant, aloud: o.Aloud, began: time.Now(),
		failed: make(chan struct{})}
	w.profile.sources = 1
	if o.real == nil {
		w.profile.severalSources(newDice(seed, aboutProfile, aboutSources))
	}
	w.profile.of(o.Kind, w.dice(aboutKind))
	w.profile.provoke(o.Mutant)
	if o.real != nil {
		w.real = o.real(w)
	}
	w.mu.Lock()
	w.server = newServer(w)
	if w.real != nil {
		w.real.remakes(w.server.table)
	}
	w.cluster = newCluster(w)
	w.server.plan()
	w.cluster.plan()
	w.planServer()
	w.planPeople()
	w.planLosses()
	w.planDeletion()
	w.planTables()
	w.keepOneAlive()
	w.mu.Unlock()

	w.wait(w.profile.length)
	w.settle()
	if w.profile.secondTable && w.fine() {
		w.endAll()
		w.mu.Lock()
		delete(w.server.slots, w.server.slotName)
		w.judgeEnd()
		w.server.remake()
		w.fault(secondTable)
		w.server.plan()
		w.keepOneAlive()
		w.mu.Unlock()
		w.wait(w.profile.length)
		w.settle()
	}
	w.restartClean()
	w.endAll()

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == "" {
		w.judgeEnd()
	}
	w.counts.Runs, w.counts.FakeSeconds = 1, int(time.Since(w.began).Seconds())
	counts.add(&w.counts)
	if w.failure == "" {
		return nil
	}
	return &Failure{Seed: seed, What: w.failure, Story: w.story()}
}

// planServer draws when the server has its troubles.
func (w *world) planServer() {
	d := w.dice(aboutServer, 1)
	for range w.profile.streamCuts {
		w.duringTrouble(d.pause(0, w.profile.length), func() {
			if slot := w.server.slots[w.server.slotName]; slot != nil && slot.holder != nil {
				w.note("the stream of p%d breaks", slot.holder.p.number)
				w.counts.StreamCuts++
				slot.holder.hangUp(errTimeout)
			}
		})
	}
	for range w.profile.serverCrashes {
		away := d.pause(time.Millisecond, 2*time.Second)
		w.duringTrouble(d.pause(0, w.profile.length), func() { w.server.crash(away) })
	}
	for range w.profile.slotLost {
		w.duringTrouble(d.pause(0, w.profile.length), func() { w.server.loseSlot(d) })
	}
	w.planDrift(d)
	w.planBreak(w.dice(aboutEnds))
	for range 3 {
		w.duringTrouble(d.pause(0, w.profile.length), w.server.checkpoint)
	}
}

// planDrift draws when the publication does not have the table.
func (w *world) planDrift(d *dice) {
	if !w.profile.drift {
		return
	}
	from, long := d.pause(0, w.profile.length), d.pause(50*time.Millisecond, 4*time.Second)
	if w.profile.longTransaction {
		// Longer than what the reconciler allows for clocks that differ: only its wait for transactions can find the row.
		w.profile.deletes, w.profile.length = false, w.profile.length+80*time.Second
		from, long = d.pause(75*time.Second, w.profile.length), 2*time.Second
		const slotMade = 800 * time.Millisecond // about: its creation would wait for the transaction
		w.after(slotMade, func() {
			tx := w.server.write(w.dice(aboutWriter, 0))
			w.after(from+long/2-slotMade, func() {
				if !tx.over && w.server.up {
					w.fault(longTransaction)
					w.server.commit(tx)
					w.server.show(tx)
				}
			})
		})
	}
	w.after(from, func() {
		if !w.server.db.published {
			return // not made yet
		}
		w.note("the publication loses the table")
		w.fault(publicationDrifts)
		w.server.db.published = false
		w.after(long, func() {
			w.note("the publication has the table again")
			w.server.db.published = true
		})
	})
}

// wait lets fake time pass; less when an invariant breaks.
func (w *world) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.failed:
	}
}

func (w *world) fine() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure == ""
}

// settle ends all trouble and waits until everything is done.
func (w *world) settle() {
	w.mu.Lock()
	w.note("all trouble ends")
	w.calm, w.calmAt, w.repaired = true, time.Now(), false
	w.cluster.calm()
	for _, p := range w.processes {
		p.thaw()
	}
	w.keepOneAlive()
	w.mu.Unlock()
	left := ""
	for begun, late := time.Now(), false; !late; {
		w.mu.Lock()
		late = w.broken == nil && time.Since(w.calmAt) >= drainPatience && time.Since(w.mendedAt) >= drainPatience
		if left = w.unsettled(); len(w.server.running) > 0 {
			left = "a transaction runs"
		}
		w.keepOneAlive()
		w.decide()
		if w.profile.people && time.Since(begun) > repairAfter {
			w.repair()
		}
		w.mu.Unlock()
		if left == "" || !w.fine() {
			return
		}
		w.listen()
		w.wait(look)
	}
	w.mu.Lock()
	w.violate("%v after all trouble has ended: %s", drainPatience, left)
	processes := w.processes
	w.mu.Unlock()
	for _, p := range processes {
		status := p.relay.Status() // asks the fakes
		w.mu.Lock()
		if !p.over && !p.dead {
			w.note("p%d: %+v", p.number, status)
		}
		w.mu.Unlock()
	}
}

// restartClean stops what runs and starts it once more: nothing may be sent again.
func (w *world) restartClean() {
	if !w.fine() || w.seed%4 != 0 {
		return
	}
	w.endAll()
	w.mu.Lock()
	old := len(w.processes)
	w.keepOneAlive()
	w.mu.Unlock()
	w.wait(2 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes[old:] {
		if p.appended > 0 {
			w.violate("p%d, started after a clean stop, sent %d records", p.number, p.appended)
		}
	}
}

// endAll stops every process and waits for it; so does a bubble need it.
func (w *world) endAll() {
	w.mu.Lock()
	w.calm = true
	processes := w.processes
	for _, p := range processes {
		p.thaw()
		p.stop()
	}
	w.mu.Unlock()
	for _, p := range processes {
		select {
		case <-p.ended:
		case <-time.After(stopPatience):
			w.mu.Lock()
			w.violate("p%d has not stopped after %v", p.number, stopPatience)
			w.mu.Unlock()
			<-p.ended
		}
	}
}

func (c *Counts) add(o *Counts) {
	c.Runs += o.Runs
	c.Rows += o.Rows
	c.Records += o.Records
	c.Calls += o.Calls
	c.Processes += o.Processes
	c.Kills += o.Kills
	c.Freezes += o.Freezes
	c.Stops += o.Stops
	c.TakeOvers += o.TakeOvers
	c.Redelivered += o.Redelivered
	c.Duplicates += o.Duplicates
	c.LateAppends += o.LateAppends
	c.Parked += o.Parked
	c.Retried += o.Retried
	c.Dead += o.Dead
	c.StreamCuts += o.StreamCuts
	c.ServerCrashes += o.ServerCrashes
	c.SlotsLost += o.SlotsLost
	c.LostAnswers += o.LostAnswers
	c.TailReads += o.TailReads
	c.CatchUpRows += o.CatchUpRows
	c.FailedCalls += o.FailedCalls
	c.Fenced += o.Fenced
	c.UnknownRequests += o.UnknownRequests
	c.Refusals += o.Refusals
	c.FakeSeconds += o.FakeSeconds
	c.Requests += o.Requests
	c.Replayed += o.Replayed
	c.DiedAgain += o.DiedAgain
	c.StayedBehind += o.StayedBehind
	c.Copies += o.Copies
	c.BreakerOpened += o.BreakerOpened
	c.Reconciled += o.Reconciled
	c.Deleted += o.Deleted
	c.Lost += o.Lost
	c.Spooled += o.Spooled
	c.Republished += o.Republished
	c.StreamsDied += o.StreamsDied
	c.DiedUnread += o.DiedUnread
	c.Reasons += o.Reasons
	c.LeftAlone += o.LeftAlone
	c.ReadBehind += o.ReadBehind
	c.Moved += o.Moved
	c.Cuts += o.Cuts
	c.Repeatable += o.Repeatable
	for name, n := range o.Faults {
		if c.Faults == nil {
			c.Faults = map[string]int{}
		}
		c.Faults[name] += n
	}
}
