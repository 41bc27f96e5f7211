// Package directory keeps a relay running for each configuration file of a directory: a file that appears starts one, a
// changed file restarts it, a removed file stops it, and the other relays keep running. Options supply how a relay is
// made and who receives the reports.
//
// Tested in directory_test.go on real files, with stand-ins for relays; with real ones by cmd/cdc-relay.
package directory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
)

const (
	// Look is the time between two looks at the files. A change counts when two looks in a row have seen the same, so
	// that a file that is being written, or replaced, is not read half.
	Look = 2 * time.Second
	// retryAfter is the wait before a relay that could not be made, or ended by itself, is tried again.
	retryAfter = 15 * time.Second
)

// Relay is the relay that a file describes.
type Relay struct {
	Config config.Config
	// Slot is the replication slot and its server; empty: not known before the database is asked.
	Slot string
	// Run relays until the context ends. Before it takes the slot it calls claim, which waits while the slot is that of
	// another file.
	Run func(ctx context.Context, claim func(ctx context.Context, slot string) error) error
}

// Audience receives reports about the files. Its methods are called from any goroutine, and may be called again with
// the same report.
type Audience interface {
	// Halted reports why the file's relay does not run, and what to do.
	Halted(name, reason, remedy string)
	// Outdated reports why the relay runs with the former content of its file, or "" once it runs with the present
	// content.
	Outdated(name, why string)
	// Gone reports that the file was removed and its relay has stopped.
	Gone(name string)
}

// Options configure a Directory.
type Options struct {
	Path     string
	Describe func(file string, text []byte) (Relay, error)
	Audience Audience
	Began    func() // called when the relays of the first look have been started
	Logger   zerolog.Logger

	// Look is the time between two looks, Look by default.
	Look time.Duration
	// Memory bounds the sum of Needs over the running relays, in bytes; 0 means no limit.
	Memory int64
	Needs  func(relays ...config.Config) int64
	// Tune is called with that sum whenever it changes.
	Tune func(bytes int64)
}

// Directory runs a relay for each file. Its invariants:
//
//   - D1 A file has at most one relay at a time: the next is made when the former has ended.
//   - D2 A slot of a server is claimed by one file at a time, and by the same one across restarts.
//   - D3 The running relays and those that are stopping need no more than Options.Memory.
//   - D4 A running relay is stopped only for a file that is gone or describes another one that may run.
type Directory struct {
	o     Options
	ended chan ending
	files map[string]*file // by the relay's name; owned by Run, as what it points to

	mu    sync.Mutex
	slots map[string]string // whose each slot is, by name; guarded by mu
}

// file is one of the directory.
type file struct {
	name, path  string
	seen, taken content   // at the last look, and that was read last
	wanted      *Relay    // by the file, or by its last content that was in order; nil: none
	wrong       error     // with what was read last
	running     *run      // nil: none
	retry       time.Time // no relay is started before
}

// run is a running relay.
type run struct {
	relay    Relay
	stop     context.CancelFunc
	stopping bool
}

type ending struct {
	name string
	err  error
}

// New returns a Directory; Run starts its relays.
func New(o Options) *Directory {
	if o.Look == 0 {
		o.Look = Look
	}
	return &Directory{o: o, ended: make(chan ending), files: map[string]*file{}, slots: map[string]string{}}
}

// Run keeps the relays running until the context ends and they have stopped. It returns an error if the directory
// cannot be read at the start, or if a relay did not stop in an orderly way.
func (d *Directory) Run(ctx context.Context) error {
	found, err := d.read()
	if err != nil {
		return err
	}
	d.settle(ctx, found, true)
	d.o.Began()
	if len(found) == 0 {
		d.o.Logger.Warn().Str("directory", d.o.Path).Msg("no *.yaml file in the directory yet, so nothing is relayed")
	}
	ticker := time.NewTicker(d.o.Look)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			found, err := d.read()
			if err != nil {
				d.o.Logger.Warn().Err(err).Msg("cannot read the directory; its relays go on as they are")
				continue
			}
			d.settle(ctx, found, false)
		case e := <-d.ended:
			d.took(ctx, e)
		case <-ctx.Done():
			return d.leave()
		}
	}
}

// leave waits for all relays to stop; the context that they run in has ended.
func (d *Directory) leave() (err error) {
	for range d.busy(nil) {
		e := <-d.ended
		if e.err != nil {
			err = errors.Join(err, fmt.Errorf("relay %s: %w", e.name, e.err))
		}
	}
	return err
}

// settle applies the result of a look: it starts, restarts and stops relays.
func (d *Directory) settle(ctx context.Context, found map[string]content, first bool) {
	for name := range found {
		if d.files[name] == nil {
			d.files[name] = &file{name: name, path: d.path(name)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		f, now := d.files[name], found[name]
		if now.sum != f.taken.sum && (first || now.sum == f.seen.sum) {
			f.taken = now
			d.take(f)
		}
		f.seen = now
		d.align(ctx, f)
	}
}

// take reads the content that the file has now.
func (d *Directory) take(f *file) {
	f.retry = time.Time{}
	if f.taken.absent() {
		f.wanted, f.wrong = nil, nil
		return
	}
	relay, err := d.describe(f)
	if f.wrong = err; err != nil {
		d.o.Logger.Error().Str("relay", f.name).Err(err).Msg("the relay's file is wrong")
		return
	}
	f.wanted = &relay
}

func (d *Directory) describe(f *file) (Relay, error) {
	if err := f.taken.err; err != nil {
		return Relay{}, err
	}
	if err := checkName(f.name); err != nil {
		return Relay{}, err
	}
	return d.o.Describe(f.path, f.taken.text)
}

// align starts, restarts or stops the file's relay as its content asks, as far as that is possible now.
func (d *Directory) align(ctx context.Context, f *file) {
	switch {
	case f.running != nil && f.running.stopping: // see took
	case f.running == nil && f.wanted == nil && f.wrong == nil:
		if f.seen.absent() {
			delete(d.files, f.name)
			d.o.Audience.Gone(f.name)
		}
	case f.running == nil && f.wanted == nil:
		d.o.Audience.Halted(f.name, f.wrong.Error(), "correct "+f.path+"; the relay starts within seconds")
	case f.running == nil:
		d.start(ctx, f)
	case f.wanted == nil:
		d.o.Logger.Warn().Str("relay", f.name).Str("slot", f.running.relay.Config.Postgres.Slot).
			Msg("the relay's file is gone; stopping the relay. Its slot stays in the database and keeps WAL: if the " +
				"relay will not come back, drop the slot with cdc-relay slot drop")
		d.stop(f)
	case f.wrong != nil:
		d.o.Audience.Outdated(f.name, f.wrong.Error())
	case f.running.relay.Slot == f.wanted.Slot && reflect.DeepEqual(f.running.relay.Config, f.wanted.Config):
		d.o.Audience.Outdated(f.name, "")
	default:
		if err := d.fits(f); err != nil {
			d.o.Audience.Outdated(f.name, err.Error())
			return
		}
		d.o.Logger.Info().Str("relay", f.name).Msg("the relay's file has changed; restarting the relay")
		d.stop(f)
	}
}

func (d *Directory) stop(f *file) {
	f.running.stopping = true
	f.running.stop()
}

// busy returns the configurations of the relays that run or are stopping, without the file's own.
func (d *Directory) busy(but *file) (configs []config.Config) {
	for _, f := range d.files {
		if f.running != nil && f != but {
			configs = append(configs, f.running.relay.Config)
		}
	}
	return configs
}

// fits returns an error if the file's relay needs more memory than is left once its running one has stopped.
func (d *Directory) fits(f *file) error {
	if d.o.Memory == 0 {
		return nil
	}
	others := d.busy(f)
	if needs := d.o.Needs(append(others, f.wanted.Config)...); needs > d.o.Memory {
		return fmt.Errorf("with limits.in_flight_bytes = %v of this file and those of %d others the process needs %v, more "+
			"than --memory = %v", f.wanted.Config.Limits.InFlightBytes, len(others), inMiB(needs), inMiB(d.o.Memory))
	}
	return nil
}

func inMiB(bytes int64) config.ByteSize { return config.ByteSize((bytes + 1<<20 - 1) >> 20 << 20) }

// start starts the file's relay unless its slot or its memory is taken.
func (d *Directory) start(ctx context.Context, f *file) {
	if time.Now().Before(f.retry) {
		return
	}
	if err := d.fits(f); err != nil {
		d.o.Audience.Halted(f.name, err.Error(), "lower limits.in_flight_bytes of this file or of others, or raise --memory")
		return
	}
	relay := *f.wanted
	if relay.Slot != "" {
		d.own(f.name, relay.Slot) // in the order of names; else Run waits
	}
	running, stop := context.WithCancel(ctx)
	f.running = &run{relay: relay, stop: stop}
	d.tune()
	go func() {
		defer stop()
		err := relay.Run(running, func(ctx context.Context, slot string) error { return d.claim(ctx, f.name, slot) })
		if running.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		d.ended <- ending{f.name, err}
	}()
}

// took handles the end of a relay.
func (d *Directory) took(ctx context.Context, e ending) {
	f := d.files[e.name]
	asked := f.running.stopping
	f.running = nil
	d.tune()
	if f.wanted == nil {
		d.own(f.name, "")
	}
	switch {
	case asked && e.err != nil:
		d.o.Logger.Warn().Str("relay", f.name).Err(e.err).
			Msg("the relay did not stop in order; its next start looks up what was recorded")
	case !asked && ctx.Err() == nil:
		d.fail(f, e.err)
		return
	}
	if ctx.Err() == nil {
		d.align(ctx, f)
	}
}

// fail reports a relay that ended by itself. It is started again after a pause.
func (d *Directory) fail(f *file, err error) {
	if err == nil {
		err = errors.New("it ended without an error")
	}
	f.retry = time.Now().Add(retryAfter)
	d.o.Logger.Error().Str("relay", f.name).Err(err).Stringer("retry_in", retryAfter).Msg("the relay ended by itself")
	d.o.Audience.Halted(f.name, err.Error(),
		fmt.Sprintf("correct what it says; the relay is tried again every %v", retryAfter))
}

func (d *Directory) tune() {
	if d.o.Tune != nil {
		d.o.Tune(d.o.Needs(d.busy(nil)...))
	}
}

// own makes the slot the only one of the named relay. If another relay has the slot, it returns that one's name.
func (d *Directory) own(name, slot string) (holder string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.slots, func(s, n string) bool { return n == name && s != slot })
	if slot == "" {
		return name
	}
	if holder = d.slots[slot]; holder == "" {
		holder, d.slots[slot] = name, name
	}
	return holder
}

// claim waits until the relay owns the slot.
func (d *Directory) claim(ctx context.Context, name, slot string) error {
	for {
		holder := d.own(name, slot)
		if holder == name {
			return nil
		}
		d.o.Audience.Halted(name, fmt.Sprintf("slot %s is the slot of %s", slot, d.path(holder)),
			"give each file a postgres.slot, and an outbox, of its own, or remove one of the two")
		select {
		case <-time.After(d.o.Look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
