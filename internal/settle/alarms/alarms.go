// Package alarms keeps what the driver noticed at its broker, and only a person can judge, in Postgres until one
// acknowledges it: a restart must not make it look as if nothing was lost. It decides nothing, and repairs nothing.
//
// Tested by package relay (alarms_test.go).
package alarms

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// lookEvery is how often the driver is asked for news: a process that is killed forgets what is younger.
	lookEvery = 250 * time.Millisecond
	// restEvery is how often while no event is in flight, so that brokers answer little.
	restEvery = time.Second
	// readEvery is how often what is open is read again: people acknowledge it, other processes add to it.
	readEvery = 2 * time.Second
	// calmEvery is how often while nothing is open, so that there is nothing to acknowledge.
	calmEvery = 8 * time.Second
	// knownFor is for how long what was read counts as known.
	knownFor = 5 * readEvery
)

// Tables is the part of a [store.Store] that this package uses.
type Tables interface {
	RaiseAlarm(ctx context.Context, a store.Alarm) error
	Alarms(ctx context.Context, all bool) ([]store.Alarm, error)
}

// Host is the relay around the keeper.
type Host interface {
	// Owns reports whether this process holds the slot. Else it neither reads alarms nor stores what it has seen.
	Owns() bool
	// Idle reports whether no event is in flight.
	Idle() bool
	// CannotRecord notes that a kind of write fails, and reports whether that is news; Recorded, that it does not any
	// more.
	CannotRecord(what string, err error) (news bool)
	Recorded(what string)
}

// Keeper keeps alarms. Open may be called from any goroutine, Run is one.
type Keeper struct {
	witness sink.Witness   // nil: the driver notices nothing
	repair  string         // see New
	own     sink.AlarmBook // what the relay itself noticed

	mu     sync.Mutex // guards what follows
	stored []store.Alarm
	read   time.Time       // when Postgres had stored; zero: it was not read
	kept   map[seen]uint64 // how many of the driver's are stored
	forgot int             // how often what was read was dropped
}

// seen identifies an alarm.
type seen struct {
	kind, topic string
	own         bool // the relay noticed it, not the driver
}

// news is an alarm that is not stored.
type news struct {
	store.Alarm
	of seen
}

// The commands that bring back what a topic has lost: of the outbox of a slot, or of one of several.
const (
	RepairOutbox   = "cdc-relay verify --repair"
	RepairOutboxes = RepairOutbox + " --outbox SCHEMA"
)

// New makes a keeper of the driver's alarms. Repair is one of the commands that bring back what was lost.
func New(driver sink.Driver, repair string) *Keeper {
	k := &Keeper{kept: map[seen]uint64{}, repair: repair}
	k.witness, _ = driver.(sink.Witness)
	return k
}

// Run stores and reads alarms while the relay holds the slot, and reads them as long as it tells of some, until the
// context ends.
func (k *Keeper) Run(ctx context.Context, tables Tables, host Host) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	var read time.Time
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Reset(lookEvery)
		if host.Idle() {
			timer.Reset(restEvery)
		}
		var fresh []news
		owns := host.Owns()
		if owns {
			fresh = k.fresh()
		} else if !k.tells() {
			read = time.Time{}
			continue
		}
		if len(fresh) == 0 && time.Since(read) < k.pause() {
			continue
		}
		read = time.Now()
		switch err := k.step(ctx, tables, fresh); {
		case !owns: // while Postgres is away, say, what was read last is told of
		case err == nil:
			host.Recorded("alarm")
		case ctx.Err() == nil:
			host.CannotRecord("alarm", err)
		}
	}
}

// pause is between two looks at what is open.
func (k *Keeper) pause() time.Duration {
	if k.Known() && !k.tells() {
		return calmEvery
	}
	return readEvery
}

// step stores what is fresh and reads what is open.
func (k *Keeper) step(ctx context.Context, tables Tables, fresh []news) error {
	for _, a := range fresh {
		if err := tables.RaiseAlarm(ctx, a.Alarm); err != nil {
			return err
		}
		k.mu.Lock()
		k.kept[a.of] += uint64(a.Count)
		k.mu.Unlock()
	}
	k.mu.Lock()
	before := k.forgot
	k.mu.Unlock()
	open, err := tables.Alarms(ctx, false)
	if err != nil {
		return err
	}
	k.mu.Lock()
	if k.forgot == before {
		k.stored, k.read = open, time.Now()
	}
	k.mu.Unlock()
	return nil
}

// Forget drops what was read: another relay has the slot, and tells of it. While no one has it, what was open is told
// of.
func (k *Keeper) Forget() {
	k.mu.Lock()
	k.stored, k.read = nil, time.Time{}
	k.forgot++
	k.mu.Unlock()
}

// tells reports whether there is something that was read and may be over.
func (k *Keeper) tells() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.stored) > 0
}

// Raise notes what the relay itself noticed.
func (k *Keeper) Raise(a sink.Alarm) { k.own.Raise(a, nil) }

// fresh are the alarms of the driver and the relay that are not stored.
func (k *Keeper) fresh() (fresh []news) {
	own := k.own.Alarms()
	raised := own
	if k.witness != nil {
		raised = append(raised, k.witness.Alarms()...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, a := range raised {
		of := seen{a.Kind, a.Topic, i < len(own)}
		if kept := k.kept[of]; a.Count > kept {
			fresh = append(fresh, news{store.Alarm{Kind: a.Kind, Topic: a.Topic, Partition: a.Partition, Text: a.Text,
				Repair:    k.repairOf(a.Kind),
				FirstSeen: a.At, At: a.At, Count: int64(a.Count - kept)}, of})
		}
	}
	return fresh
}

// Open are the alarms that no one has acknowledged: those that are not stored yet, then the newest first; never nil.
func (k *Keeper) Open() []store.Alarm {
	open := []store.Alarm{}
	for _, a := range k.fresh() {
		open = append(open, a.Alarm)
	}
	k.mu.Lock()
	open = append(open, k.stored...)
	k.mu.Unlock()
	return open
}

// OpenOf is how many of a kind are open; not known before they were read, or while they cannot be, unless this process
// has noticed one.
func (k *Keeper) OpenOf(kind string) (n int, known bool) {
	for _, a := range k.Open() {
		if a.Kind == kind {
			n++
		}
	}
	noticed := slices.ContainsFunc(k.fresh(), func(a news) bool { return a.Kind == kind })
	return n, noticed || k.Known()
}

// Known reports whether the open alarms were read lately.
func (k *Keeper) Known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.read.IsZero() && time.Since(k.read) <= knownFor
}

// repairOf is the command that brings back what an alarm of the kind says was lost; "" where nothing was.
func (k *Keeper) repairOf(kind string) string {
	if kind == sink.AlarmPartitionChanged || kind == sink.AlarmIDsReused {
		return ""
	}
	return k.repair
}
