package simulator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
)

// errDead is returned by calls of a killed process; no one receives it.
var errDead = errors.New("the process was killed")

// process is one life of a relay. A kill cannot end its goroutines, so it ends what they can do: each call to the fakes
// waits until the call's own context ends, and changes nothing. What the process did in memory by then is lost with it.
type process struct {
	w      *world
	number int
	relay  *relay.Relay
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned

	// Guarded by world.mu.
	tables    *tables
	leftAlone time.Time // the server has ended its stream, and the news is behind what it has not read; zero: no
	learnt    time.Time // when it was last told by SQL that the slot is not its own
	dead      bool
	died      chan struct{} // closed at the kill
	thawed    chan struct{} // closed when it goes on; nil when it is not frozen
	woke      time.Time     // when it went on last
	steps     int           // calls that began or ended
	fatalStep int           // the step at which it is killed; 0: none
	stopping  bool
	serial    int          // of its last take-over, over all processes
	appended  int          // records of it that topics got
	repeated  int          // of these, what it sent again itself, without knowing whether it was there
	witness   sink.Witness // counts those, where nothing can be read back; else nil
	calls     map[string]int
	requests  map[string]int
	channels  []*queueChannel // to queues, the last one to each exchange
	over      bool            // Run has returned
	unsure    bool            // its last take-over was done, and it was not told: the next one begins a term
	err       error
}

// spawn starts a process. Called with mu held.
func (w *world) spawn() *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{
		w: w, number: len(w.processes) + 1, cancel: cancel, ended: make(chan struct{}), died: make(chan struct{}),
		calls: map[string]int{}, requests: map[string]int{},
	}
	w.processes = append(w.processes, p)
	w.counts.Processes++
	w.note("p%d starts", p.number)
	config := w.profile.config
	config.Postgres.Slot = w.server.slotName
	var err error
	p.relay, err = relay.New(config, w.driverOf(p), relay.WithLogger(zerolog.Nop()),
		relay.WithVersion("simulated"), relay.WithPostgres(backend{p}))
	if err != nil {
		panic(fmt.Sprintf("the profile's configuration: %v", err))
	}
	go func() {
		err := p.relay.Run(ctx)
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		p.over, p.err = true, err
		w.note("p%d ended: %v", p.number, err)
		if !p.dead && !p.stopping {
			w.violate("p%d ended by itself: %v", p.number, err)
		}
		if !p.dead { // a dead one was followed already
			w.duringTrouble(w.dice(aboutFate, uint64(p.number), 2).pause(0, time.Second), w.keepOneAlive)
		}
		close(p.ended)
	}()
	w.drawFate(p)
	return p
}

// drawFate decides how the process ends. Called with mu held.
func (w *world) drawFate(p *process) {
	d := w.dice(aboutFate, uint64(p.number))
	if p.number > w.profile.lives || w.calm {
		return
	}
	at := d.pause(0, w.profile.length)
	switch {
	case w.profile.kills && d.chance(0.6):
		if d.chance(0.75) {
			p.fatalStep = 1 + d.below(one(d, 30, 100, 300))
			return
		}
		w.duringTrouble(at, p.kill)
	case w.profile.freezes && d.chance(0.6):
		w.duringTrouble(at, func() { p.freeze(d.pause(500*time.Millisecond, 8*time.Second)) })
	case w.profile.stops:
		w.duringTrouble(at, p.stop)
	}
}

// kill ends the process as kill -9 does. Called with mu held.
func (p *process) kill() {
	if p.dead || p.over {
		return
	}
	w := p.w
	w.note("p%d is killed", p.number)
	w.counts.Kills++
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
	p.dead = true
	close(p.died)
	p.cancel()
	w.server.forget(p)
	w.duringTrouble(w.dice(aboutFate, uint64(p.number), 1).pause(0, 300*time.Millisecond), w.keepOneAlive)
}

// stop ends the process as SIGTERM does. Called with mu held.
func (p *process) stop() {
	if p.dead || p.over || p.stopping {
		return
	}
	p.w.note("p%d is asked to stop", p.number)
	p.w.counts.Stops++
	p.stopping = true
	p.cancel()
}

// freeze stops what the process can do for a while, as SIGSTOP and SIGCONT do, and lets another one stand by. Its
// goroutines go on in memory up to their next call. Called with mu held.
func (p *process) freeze(d time.Duration) {
	if p.dead || p.over || p.thawed != nil {
		return
	}
	w := p.w
	w.note("p%d is frozen for %v", p.number, d)
	w.counts.Freezes++
	p.thawed = make(chan struct{})
	w.server.hear(p)
	w.spawn()
	w.after(d, p.thaw)
}

// thaw lets a frozen process go on. Called with mu held.
func (p *process) thaw() {
	if p.thawed == nil {
		return
	}
	p.w.note("p%d goes on", p.number)
	close(p.thawed)
	p.thawed, p.woke = nil, time.Now()
}

// keepOneAlive starts a process if there is none that can take over. Called with mu held.
func (w *world) keepOneAlive() {
	want := 1
	if w.profile.standby {
		want = 2
	}
	for _, p := range w.processes {
		if !p.dead && !p.over && !p.stopping && p.thawed == nil {
			want--
		}
	}
	for range want {
		w.spawn()
	}
}

// pass is where each call of the process to the fakes begins and ends: where it may be killed, and where a frozen or
// dead one stays. Called without mu.
func (p *process) pass(ctx context.Context, what string) error {
	for {
		p.w.mu.Lock()
		p.step(what)
		dead, thawed := p.dead, p.thawed
		p.w.mu.Unlock()
		switch {
		case dead:
			<-ctx.Done()
			return errDead
		case thawed == nil:
			return nil
		}
		<-thawed
	}
}

// step counts a call, and kills the process if it was to be its last. Called with mu held.
func (p *process) step(what string) {
	p.steps++
	if what == "spool" {
		p.w.comesToSpool(p)
	}
	if p.steps == p.fatalStep && !p.w.calm {
		p.w.note("p%d comes to its last step: %s", p.number, what)
		p.kill()
	}
}

// lives reports that it was not killed.
func (p *process) lives() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return !p.dead
}

// sleep waits; false: the context ended or the process died first.
func (p *process) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-p.died:
	}
	return false
}
