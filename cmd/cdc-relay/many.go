package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/run/directory"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
	"github.com/cdc-relay/cdc-relay/internal/web"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/relay"
)

// manyCommand runs a relay for each file of a directory.
type manyCommand struct {
	Directory string
	Memory    string
}

func (c *manyCommand) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.Directory, Shown: "DIR", NotEmpty: true}, "config-dir",
		"Directory with a configuration file for each of several relays.")
	f.Var(&cli.TextFlag{Into: &c.Memory, Shown: "SIZE", NotEmpty: true}, "memory",
		"With --config-dir: the most memory for all relays together, such as 512MiB. A relay that does not fit is halted.")
}

// mistakes notes what is wrong with the flags.
func (c *manyCommand) mistakes(a *cli.App) (memory int64) {
	switch {
	case c.Memory == "":
		return 0
	case c.Directory == "":
		a.Wrong("--memory", "found "+strconv.Quote(c.Memory)+" without --config-dir", "a size, with --config-dir; a single "+
			"relay's memory follows from limits.in_flight_bytes")
		return 0
	}
	size, err := config.ParseByteSize(c.Memory)
	if least := config.ByteSize(cli.MemoryOf()); err != nil || size <= least {
		a.Wrong("--memory", "found "+strconv.Quote(c.Memory), fmt.Sprintf("a size such as 512MiB, above %v", least))
	}
	return int64(size)
}

// Run runs the relays until stopped.
func (c *manyCommand) Run(a *cli.App) error {
	memory := c.mistakes(a)
	if file := a.ConfigFile(); file != "" {
		a.Wrong("--config", "found "+strconv.Quote(file)+" beside --config-dir", "one of the two: what holds for all relays "+
			"of a directory is set by flags or the environment")
	}
	process, err := a.Load(cli.NeedsNothing)
	if err != nil {
		return err
	}
	if err := staysHalted(process, a.Origin); err != nil {
		return err
	}
	log, lines := logger(a, process)
	server, err := listen(process, nil, log)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(process, log)
	defer stop()
	go cli.FollowLoad(ctx)
	version := a.Build.Facts().Version
	reader := newReader(cli.Beneath(a.Out))
	ctx, endWithReader := reader.until(ctx, log, lines)
	defer endWithReader()
	m := &many{app: a, process: process, log: log, lines: lines, reader: reader, version: version,
		served: server.Many(process.Service, version)}
	files := directory.New(directory.Options{
		Path: c.Directory, Describe: m.describe, Audience: m.served, Logger: log,
		Memory: memory, Needs: cli.MemoryOf, Tune: cli.TuneMemoryTo,
		Began: func() {
			m.served.Open()
			log.Info().Str("http", server.Address()).Str("version", version).Str("directory", c.Directory).
				Msg("cdc-relay starts, with a relay for each file of the directory")
			server.WarnOfToken()
		},
	})
	err = errors.Join(files.Run(ctx), server.Close())
	if err == nil && reader.isGone() {
		err = errors.New("standard output has no reader")
	}
	return err
}

// many makes the relays of the files.
type many struct {
	app      *cli.App
	process  config.Config
	log      zerolog.Logger
	lines    *logqueue.Writer
	reader   *reader
	version  string
	served   *web.Many
	standbys atomic.Int64
}

// describe reads a file.
func (m *many) describe(file string, text []byte) (directory.Relay, error) {
	loaded, err := m.app.LoadFile(file, text, "http", "log") // what holds for the process
	problems, _ := errors.AsType[config.Problems](err)
	if halts, is := errors.AsType[config.Problems](staysHalted(loaded.Config, loaded.Origin)); is {
		problems = append(problems, halts...)
	}
	if len(problems) > 0 {
		lines := make([]string, 0, len(problems))
		for _, p := range problems {
			lines = append(lines, p.String())
		}
		slices.Sort(lines)
		return directory.Relay{}, errors.New(strings.Join(lines, "; ")) // one line, for labels, lists and logs
	}
	if err != nil {
		return directory.Relay{}, err
	}
	r := directory.Relay{Config: loaded.Config, Run: m.runner(strings.TrimSuffix(filepath.Base(file), ".yaml"), loaded)}
	if loaded.Origin("postgres.slot") != "" {
		r.Slot = slotOf(loaded.Config)
	}
	return r, nil
}

// staysHalted refuses to end the process for one relay of several.
func staysHalted(cfg config.Config, from origin) error {
	if cfg.OnHalt != config.OnHaltExit {
		return nil
	}
	return config.Problems{{Key: "on_halt", Where: from("on_halt"), What: "found " + strconv.Quote(cfg.OnHalt),
		Allowed: config.OnHaltStay + ", with --config-dir: the halt of one relay must not end the others"}}
}

// slotOf names a slot and its server: slots of a server have different names, whatever their databases.
func slotOf(cfg config.Config) string {
	url := cfg.Postgres.ReplicationURL
	if url == "" {
		url = cfg.Postgres.URL
	}
	at := "its server"
	if pc, err := pgxpool.ParseConfig(url); err == nil {
		at = net.JoinHostPort(pc.ConnConfig.Host, strconv.Itoa(int(pc.ConnConfig.Port)))
	}
	return cfg.Postgres.Slot + " on " + at
}

// runner runs the relay of that name.
func (m *many) runner(name string, loaded cli.Loaded) func(context.Context,
	func(context.Context, string) error) error {
	return func(ctx context.Context, claim func(context.Context, string) error) error {
		defer m.served.Leave(name)
		cfg, unnamed := named(ctx, loaded.Origin, loaded.Config)
		log := m.logger(name, cfg)
		if unnamed != nil {
			var err error
			cfg, err = awaitName(ctx, loaded.Origin, cfg, unnamed, log, func(why string) { m.served.Waits(name, why) })
			if err != nil {
				return err
			}
			log = m.logger(name, cfg)
		}
		if err := claim(ctx, slotOf(cfg)); err != nil {
			return err
		}
		desk, err := consumers.Open(context.Background(), ask.InboxOf(cfg))
		if err != nil {
			return err
		}
		defer desk.Close()
		return job{cfg: cfg, version: m.version, schemas: loaded.Schemas, log: log, lines: m.lines, out: m.reader,
			options: []relay.Option{
				relay.WithRegisterer(m.served.Registerer(name)), relay.WithStandbys(&m.standbys),
				relay.WithDegradations(func() []relay.Degradation { return m.served.Concerns(name) }),
			},
			begins: func(r *relay.Relay) {
				m.served.Serve(name, r, desk)
				log.Info().Str("slot", cfg.Postgres.Slot).Msg("the relay starts")
			}}.run(ctx)
	}
}

func (m *many) logger(name string, cfg config.Config) zerolog.Logger {
	return cli.Labelled(m.log, m.lines, cfg).With().Str("relay", name).Logger()
}
