package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
)

type checkCommand struct {
	Timeout time.Duration `help:"How long the whole examination may take." default:"30s" env:"CDC_RELAY_CHECK_TIMEOUT"`
}

func (checkCommand) Help() string {
	return "Examines everything that run needs and changes nothing. One line each: ok, warn (works, but read it) or FAIL, with the repair. Exit code 1 when something FAILs.\n\nExample:\n\n  cdc-relay check --config relay.yaml"
}

// level is how bad a finding is.
type level string

const (
	ok   level = "ok"
	warn level = "warn" // it works, and a person should know
	fail level = "FAIL" // run would not work, or would lose events
)

// finding is one line of the report.
type finding struct {
	Name  string `json:"name"`
	Level level  `json:"level"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

// report collects findings in the order in which things are looked at.
type report struct {
	OK     bool      `json:"ok"`
	Checks []finding `json:"checks"`
}

func (r *report) add(l level, name, text, fix string) {
	r.Checks = append(r.Checks, finding{Name: name, Level: l, Text: text, Fix: fix})
}

// Run examines the database, then the brokers, and prints what it found.
func (c checkCommand) Run(a *app) error {
	a.positive("--timeout", c.Timeout)
	cfg, err := a.load(needsBoth)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	r := &report{}
	examinePostgres(ctx, cfg, r)
	if cfg.Sink == config.SinkStdout {
		r.add(ok, "sink", "messages are printed to standard output and go to no broker", "")
	} else {
		examineKafka(ctx, cfg, r)
	}
	r.OK = true
	for _, f := range r.Checks {
		r.OK = r.OK && f.Level != fail
	}
	if a.cli.JSON {
		err = a.printJSON(r)
	} else {
		a.printReport(r)
	}
	if err == nil && !r.OK {
		err = silentError{exitFailed}
	}
	return err
}

func (a *app) printReport(r *report) {
	colours := map[level]string{ok: green, warn: yellow, fail: red}
	for _, f := range r.Checks {
		line := a.paint(colours[f.Level], fmt.Sprintf("%-4s", f.Level)) + "  " + f.Name + ": " + f.Text
		if f.Fix != "" {
			line += "; fix: " + f.Fix
		}
		fmt.Fprintln(a.out, strings.ReplaceAll(line, "\n", " "))
	}
}

// connect opens one connection of the SQL side that works through a pooler.
func connect(ctx context.Context, cfg config.Config) (*pgx.Conn, error) {
	pool, err := pgxpool.ParseConfig(cfg.Postgres.URL) // which knows the options of the pool, too
	if err != nil {
		return nil, fmt.Errorf("read postgres.url: %w", err)
	}
	pc := pool.ConnConfig
	pc.DefaultQueryExecMode = pgx.QueryExecModeExec
	if password := relay.StoreConfig(cfg).Password; password != nil {
		if pc.Password, err = password(); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	return conn, nil
}
