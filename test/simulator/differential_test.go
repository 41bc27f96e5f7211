package simulator

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var sequences = flag.Uint64("sequences", 0, "how many sequences of calls to make; 0: see package harness")

const (
	// sequenceSteps is how many steps a sequence has.
	sequenceSteps = 70
	// manySequences have every step, and each that is fenced also refused.
	manySequences = 40
)

// TestMadeUpTablesDoWhatTheRealOnesDo makes the same calls, by a seed, of three relays, two of them on one slot, on
// package store and on the made-up tables, and compares after each call what they say and what they hold. A sequence
// that fails is shortened as long as it fails.
//
// Breaks it catches: made-up tables that are kinder, or other, than the SQL that they stand for, and the other way
// round. Seen to fail, in the SQL, with RetryLater without the source, and with the breaker written without the fence;
// in the made-up tables with RetryLater that keeps the old count of attempts, and with SaveProgress without the fence.
func TestMadeUpTablesDoWhatTheRealOnesDo(t *testing.T) {
	if raced {
		t.Skip("make test plays it without the race detector")
	}
	n := uint64(harness.Count(t, "sequences of calls on SQL"))
	if *sequences > 0 {
		n = *sequences
	}
	real := newRealTables(t)
	begun, calls := time.Now(), map[string]int{}
	if why := differ(t, real, *from, n, *mutant, calls); why != "" {
		t.Fatal(why)
	}
	t.Logf("%d sequences in %v: %v", n, time.Since(begun).Round(time.Millisecond), calls)
	for _, step := range stepsOf {
		if calls[step.name] == 0 && n >= manySequences {
			t.Errorf("no sequence had the step %q", step.name)
		}
		if step.fenced && calls[step.name+" fenced"] == 0 && n >= manySequences {
			t.Errorf("the step %q was never refused for its epoch", step.name)
		}
	}
}

// differ plays sequences until one differs, and tells that one, as short as it can be; empty: none did.
func differ(t *testing.T, real *realTables, from, n uint64, mutant string, calls map[string]int) string {
	t.Helper()
	for seed := from; seed < from+n; seed++ {
		steps := make([]int, sequenceSteps)
		for i := range steps {
			steps[i] = i
		}
		if why, _ := sequence(t, real, seed, steps, mutant, calls); why == "" {
			continue
		}
		if mutant != "" {
			return fmt.Sprintf("sequence %d differs", seed)
		}
		steps = shorten(steps, func(steps []int) bool {
			why, _ := sequence(t, real, seed, steps, mutant, map[string]int{})
			return why != ""
		})
		why, story := sequence(t, real, seed, steps, mutant, map[string]int{})
		return fmt.Sprintf("sequence %d differs, shortened to %d steps; once more: -from %d -sequences 1\n%s\n%s", seed,
			len(steps), seed, strings.Join(story, "\n"), why)
	}
	return ""
}

// driftSequences is within how many sequences each mutant of the made-up tables must show.
const driftSequences = 100

// TestMutantsOfTheStoreDifferFromSQL plays mutants of the made-up tables beside the real ones until the two differ.
//
// Breaks it catches: sequences that do not come to what was broken. Seen to fail while no one asked for the slot as the
// backend of another relay, and while events were parked in the order of their rows only.
func TestMutantsOfTheStoreDifferFromSQL(t *testing.T) {
	if raced || testing.Short() {
		t.Skip("takes a minute; make test plays it without the race detector")
	}
	real := newRealTables(t)
	for _, name := range someMutants(t, 1) {
		if name == followersGo { // no sequence has come to two replays of a lane yet; TestMutantsOfTheStoreAreCaught has
			continue
		}
		why := differ(t, real, 1, driftSequences, name, map[string]int{})
		if why == "" {
			t.Errorf("%s: %d sequences did not notice it", name, driftSequences)
		}
		first, _, _ := strings.Cut(why, "\n")
		t.Logf("%s: %s", name, first)
	}
}

// shorten drops steps, many at once and then one by one, while the rest still fails.
func shorten(steps []int, fails func([]int) bool) []int {
	for size := len(steps) / 2; size > 0; {
		shorter := false
		for at := 0; at+size <= len(steps); {
			if rest := slices.Delete(slices.Clone(steps), at, at+size); fails(rest) {
				steps, shorter = rest, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return steps
}

// caller is a relay that makes calls; no one is behind it.
type caller struct {
	*process
	askedTwin
	slot   string
	epoch  int64 // as it took over last
	cursor map[int64]store.DeadCursor
}

// drill is a sequence of calls on a world without relays, in which no judge sits and nothing fails by itself.
type drill struct {
	w       *world
	ctx     context.Context
	callers []*caller
	running []*transaction
	calls   map[string]int
	story   []string
}

const otherSlot = "other"

// sequence makes the steps; each depends on its own number and on the current state.
func sequence(t *testing.T, real *realTables, seed uint64, steps []int, mutant string,
	calls map[string]int) (why string, story []string) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{seed: seed, began: time.Now(), failed: make(chan struct{}), unjudged: true, calm: true, mutant: mutant}
		d := w.dice(aboutSequence)
		w.profile = profile{topics: 2, keys: 1 + d.below(2), partitions: 2, sources: 1, largest: 3, keyless: 0.2,
			people: true, config: config.Default()}
		c := &w.profile.config
		c.Outbox.Columns.Headers = "headers"
		c.Outbox.AfterPublish = one(d, config.AfterPublishMark, config.AfterPublishKeep, config.AfterPublishDelete)
		c.Retry.OnDead = one(d, config.OnDeadContinue, config.OnDeadHold)
		c.Outbox.Retention = config.Duration(one(d, 0, 0, 5*time.Second))
		w.real = real.begin(w)
		w.mu.Lock()
		w.server = newServer(w)
		w.real.remakes(w.server.table)
		w.cluster = newCluster(w)
		w.mu.Unlock()
		p := &drill{w: w, ctx: t.Context(), calls: calls}
		for i, slot := range []string{w.server.slotName, w.server.slotName, otherSlot} {
			p.add(i+1, slot)
		}
		for _, i := range steps {
			time.Sleep(w.dice(aboutSequence, uint64(i), 1).pause(0, 400*time.Millisecond))
			p.step(w.dice(aboutSequence, uint64(i)))
			if w.failure != "" {
				break
			}
		}
		why, story = w.failure, p.story
		w.mu.Lock()
		for _, tx := range p.running {
			w.server.end(tx)
		}
		w.mu.Unlock()
	})
	return why, story
}

// add makes a relay that knows its slot.
func (p *drill) add(number int, name string) {
	w := p.w
	c := &caller{slot: name, cursor: map[int64]store.DeadCursor{}, process: &process{
		w: w, number: number, died: make(chan struct{}), ended: make(chan struct{}), calls: map[string]int{}}}
	w.profile.config.Postgres.Slot = name
	tables, err := backend{c.process}.OpenTables(p.ctx, relay.StoreConfig(w.profile.config))
	if err != nil {
		panic(err)
	}
	c.askedTwin = tables.(askedTwin)
	w.mu.Lock()
	if w.server.slots[name] == nil {
		w.server.slots[name] = &slot{confirmed: w.server.wal.end}
	}
	w.processes = append(w.processes, c.process)
	w.mu.Unlock()
	if _, err := c.Register(p.ctx, systemID, 1, w.server.table.oid, store.CatchUp); err != nil {
		panic(err)
	}
	p.grant(c)
	p.takeOver(c, true)
	p.callers = append(p.callers, c)
}

// grant gives the slot to the relay.
func (p *drill) grant(c *caller) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.server.lastPID++
	w.server.slots[c.slot].holder = &stream{w: w, p: c.process, grant: replication.Grant{PID: w.server.lastPID}}
}

func (p *drill) takeOver(c *caller, known bool) {
	pid := uint32(1)
	if known {
		pid = uint32(p.w.server.slots[c.slot].holder.grant.PID)
	}
	if epoch, _, err := c.TakeOver(p.ctx, pid, 1); err == nil {
		c.epoch = epoch
	}
}

// rows are some of those that have committed.
func (p *drill) rows(d *dice) []*row {
	var rows []*row
	for _, r := range p.w.server.table.rows {
		if r.committed && d.chance(0.3) {
			rows = append(rows, r)
		}
	}
	return rows[:min(len(rows), 4)]
}

// parked are some of the source's parked events.
func (c *caller) parked(d *dice) (list []*parkedRow) {
	for at, row := range c.w.server.db.parked {
		if at.source == c.tables.source {
			list = append(list, row)
		}
	}
	slices.SortFunc(list, func(a, b *parkedRow) int { return a.arrival - b.arrival })
	return slices.DeleteFunc(list, func(*parkedRow) bool { return d.chance(0.6) })
}

// eventOf is the row's event at a place of the stream.
func (p *drill) eventOf(r *row, d *dice) *outbox.Event {
	e := r.event()
	era := p.w.server.db.states[p.w.server.slotName].Era
	e.Position = outbox.Position{Epoch: era, Order: uint64(r.seq), Index: uint32(d.below(2))}
	return &e
}

func (r *row) keyBytes() []byte {
	if r.key == "" {
		return nil
	}
	return []byte(r.key)
}

// retryIn is when something is tried again, or that it is not by itself.
func retryIn(d *dice) time.Duration {
	return one(d, 0, store.NotDue, store.WhenWell, d.pause(0, 2*time.Second))
}

func (p *drill) tell(format string, args ...any) {
	p.story = append(p.story, fmt.Sprintf("%9.4fs  ", time.Since(p.w.began).Seconds())+fmt.Sprintf(format, args...))
}
