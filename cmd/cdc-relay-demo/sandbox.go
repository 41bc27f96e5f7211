package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/cmd/internal/demo"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/embedded"
)

func sandboxCommand() *cobra.Command {
	return cli.Command("sandbox", "Serve a Postgres with an outbox, and print what is committed there, for tests.",
		`Starts a Postgres, creates an outbox and the function emit in it, and relays what is committed there: each message is
one line of JSON on standard output, as sink stdout prints it. The first line is the address, {"postgres_url": "…"}.
All of it ends when standard input ends; Ctrl-C is ignored: the program that started it decides. Outbox and messages
can be configured as for run. The test kits of the packages for TypeScript, Python and Java use it.

Example:

  cdc-relay-demo sandbox`, sandbox)
}

// sandbox relays until standard input ends.
func sandbox(a *cli.App) (err error) {
	cfg, err := a.Load(cli.NeedsNothing)
	if err != nil {
		return err
	}
	ctx, stop := leashed()
	defer stop()
	postgres, err := embedded.StartPostgres(ctx, embedded.PostgresConfig{Password: rand.Text()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Stop()) }()
	at := demo.Addresses{PostgresURL: postgres.URL("postgres")}
	at.Configure(&cfg)
	cfg.Sink, cfg.OnHalt = config.SinkStdout, config.OnHaltExit
	cfg.Postgres.Slot, cfg.Postgres.Schema = "sandbox_stdout", "sandbox_stdout"
	cfg.Outbox.AfterPublish = config.AfterPublishKeep
	if cfg.Outbox.Columns.Headers == "" { // emit writes headers
		cfg.Outbox.Columns.Headers = "headers"
	}
	if cfg.Log == config.Default().Log {
		cfg.Log.Level = "warn"
	}
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return err
	}
	defer st.Close()
	if err := install.All(ctx, cfg, st); err != nil {
		return err
	}
	if err := new(install.Plan).MakeEmit(ctx, cfg, st); err != nil {
		return err
	}
	log, lines := a.Logger(cfg)
	r, err := newRelay(a, cfg, log, relay.WithLoggerTo(log, lines))
	if err != nil {
		return err
	}
	line, err := json.Marshal(map[string]string{"postgres_url": at.PostgresURL})
	if err == nil {
		err = a.Script(string(line) + "\n")
	}
	if err != nil {
		return errors.Join(fmt.Errorf("tell the address: %w", err), r.Close())
	}
	return r.Run(ctx)
}
