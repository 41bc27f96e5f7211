package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

const (
	patience   = 60 * time.Second // for what an incident left behind to arrive
	toldAtMost = 20               // incidents that the console lists
)

// stage is where incidents happen: servers and a relay that can be broken, under load.
type stage struct {
	*servers
	cfg      config.Config
	st       *store.Store
	relay    *childRelay
	load     *demoLoad
	narrator *narrator
	lasting  time.Duration // how long each thing stays broken

	// Of the one goroutine that plays incidents.
	scene    scene
	poisoned string // the id of the last event that was poisoned
}

// onStage shows the path with the stand-in for Kafka, and what breaks it: with --break all incidents, otherwise those
// that are asked for in the console.
func (c demoCommand) onStage(ctx context.Context, a *cli.App, cfg config.Config) (err error) {
	s := &stage{load: newDemoLoad(c.Rate, c.Aggregates), narrator: newNarrator(a), lasting: c.Pause}
	s.load.tolerant = true
	if s.servers, err = c.startKeeping(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	quiet := cfg.Log == config.Default().Log
	s.cfg = demoConfig(cfg, s.addresses())
	if quiet {
		s.cfg.Log.Level = "error" // outages are the show
	}
	say := a.Narration()
	cli.Fprintf(say, "Postgres %d is real, at %s\n", s.postgres.Version(), s.cfg.Postgres.URL)
	cli.Fprintf(say,
		"The broker at %s is not Kafka but an in-process stand-in (kfake): good for a first look, not for guarantees.\n",
		s.cfg.Kafka.Brokers[0])
	if s.st, err = store.Open(ctx, relay.StoreConfig(s.cfg)); err != nil {
		return err
	}
	defer s.st.Close()
	if err := install.All(ctx, s.cfg, s.st); err != nil {
		return err
	}
	if s.relay, err = newChild(ctx, a, s.cfg); err != nil {
		return err
	}
	for _, i := range s.incidents() {
		s.scene.Incidents = append(s.scene.Incidents, choice{i.name, i.label})
	}
	s.scene.Told = []told{}
	if err := s.relay.start(ctx, s.scene); err != nil {
		return errors.Join(err, s.relay.stop())
	}
	cli.Fprintf(say, "The console: http://%s (beside it /api/v1/status, /metrics, /readyz)\n", s.relay.address)
	if err := s.run(ctx, c, a); err != nil {
		return err
	}
	return sumUp(a, s.load.totals(), c.broker())
}

// run has events written, relayed and consumed until the time is over. Stopping goes against the stream: first the
// incidents and the writer, then, when all has arrived, the relay and the consumer.
func (s *stage) run(ctx context.Context, c demoCommand, a *cli.App) error {
	show := "Ctrl-C stops. Break it in the console."
	if c.Break {
		show = "While things break. Ctrl-C stops."
	}
	cli.Fprintf(a.Narration(), "Writing %d events per second of %d aggregates. %s\n\n", c.Rate, c.Aggregates, show)
	s.narrator.begun = time.Now()
	running, stopRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRunning()
	group, groupCtx := errgroup.WithContext(running)
	playing, stopPlaying := context.WithCancel(ctx)
	defer stopPlaying()
	if c.Duration > 0 {
		playing, stopPlaying = context.WithTimeout(ctx, c.Duration)
		defer stopPlaying()
	}
	defer context.AfterFunc(groupCtx, stopPlaying)()
	writing, stopWriting := context.WithCancel(groupCtx)
	defer stopWriting()
	written := make(chan struct{})
	group.Go(func() error {
		defer close(written)
		return s.load.write(writing, s.cfg)
	})
	group.Go(func() error { return s.load.consume(groupCtx, s.cfg) })
	group.Go(func() error { return s.relay.watchOver(groupCtx) })
	var err error
	if c.Break {
		err = s.playAll(playing)
	} else {
		group.Go(func() error { return watch(groupCtx, s.narrator, s.load, s.relay.status) })
		s.playAsked(playing)
	}
	stopWriting()
	<-written // the writer commits what it has begun, which is to arrive as well
	s.load.await(groupCtx, demoSettling)
	err = errors.Join(err, s.relay.stop())
	stopRunning()
	return errors.Join(err, group.Wait())
}

// startKeeping starts the servers, with a broker that keeps its topics over a restart.
func (c demoCommand) startKeeping(ctx context.Context) (*servers, error) {
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Password: rand.Text()})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cdc-relay-demo-kafka-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for the broker: %w", err), postgres.Stop())
	}
	s := &servers{postgres: postgres, kafka: embedded.FakeKafkaConfig{Topics: demoPartitioned(), DataDir: dir}}
	if s.broker, err = embedded.StartFakeKafka(s.kafka); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir), postgres.Stop())
	}
	s.kafka.Port, s.kafka.Topics = s.broker.Port(), nil
	return s, nil
}

// playAll plays all incidents, one after another, until one fails.
func (s *stage) playAll(ctx context.Context) error {
	s.scene.Playing = everything
	all := s.incidents()
	for n, i := range all {
		if isOver(ctx) {
			break
		}
		if err := s.play(ctx, i, fmt.Sprintf("%d/%d  ", n+1, len(all))); err != nil {
			return err
		}
	}
	s.scene.Playing = ""
	s.relay.show(s.scene)
	return nil
}

// playAsked plays what is asked for in the console until the context ends. An incident that fails is told there.
func (s *stage) playAsked(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-s.relay.asked:
			if name == everything {
				if err := s.playAll(ctx); err == nil {
					continue
				}
			}
			for _, i := range s.incidents() {
				if i.name == name {
					s.scene.Playing = name
					_ = s.play(ctx, i, "")
				}
			}
			s.scene.Playing = ""
			s.relay.show(s.scene)
		}
	}
}

// play has an incident happen, last and end, and says two lines of it. The second comes when all that was written
// before has arrived.
func (s *stage) play(ctx context.Context, i incident, prefix string) error {
	s.narrator.line("%s%s Look at the console: %s.", prefix, i.happens, i.look)
	s.tell(told{Label: i.label, At: time.Now().UTC().Format(time.RFC3339), Happens: i.happens + " Look: " + i.look + "."})
	over, err := s.last(ctx, i)
	if isOver(ctx) { // errors that follow from that are not reported
		return nil
	}
	if err != nil {
		over = "It failed: " + err.Error()
	}
	s.narrator.line("     %s", over)
	now := &s.scene.Told[len(s.scene.Told)-1]
	now.Over, now.Failed = over, err != nil
	s.relay.show(s.scene)
	return err
}

// last plays an incident from its beginning to its end, and returns what became of it. Before it happens there is time
// to read that it will, and for the console to show it.
func (s *stage) last(ctx context.Context, i incident) (over string, err error) {
	if pause(ctx, s.lasting/2); isOver(ctx) {
		return "", ctx.Err()
	}
	if err := i.do(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", i.label, err)
	}
	pause(ctx, s.lasting)
	// Also when the demo is about to stop: what was written must arrive.
	if err := i.undo(context.WithoutCancel(ctx)); err != nil {
		return "", fmt.Errorf("%s: put it right: %w", i.label, err)
	}
	if err := s.load.catchUp(ctx, patience); err != nil {
		return "", fmt.Errorf("%s: %w", i.label, err)
	}
	t, longest := s.load.totals(), s.load.longestWait()
	return fmt.Sprintf("%s. No event waited longer than %s; of %d so far missing 0, duplicated %d, out of order %d.",
		i.over,
		longest.Round(10*time.Millisecond), t.received, t.duplicated, t.reordered), nil
}

// tell adds an incident to those that the console lists.
func (s *stage) tell(t told) {
	s.scene.Told = append(slices.Clone(s.scene.Told), t)
	s.scene.Told = s.scene.Told[max(0, len(s.scene.Told)-toldAtMost):]
	s.relay.show(s.scene)
}
