package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
)

// unused is a driver that nothing is sent by.
type unused struct{ sink.Driver }

func (unused) Close() error { return nil }

// noPostgres fails before anything is connected to.
type noPostgres struct{ relay.Postgres }

var errNoPostgres = errors.New("no database here")

func (noPostgres) OpenTables(context.Context, store.Config) (relay.Tables, error) {
	return nil, errNoPostgres
}

// A program that embeds the relay gets every mistake at once, and needs no configuration of servers that it
// reaches in its own way. Seen to fail with the configuration not validated, and with brokers wanted beside a driver.
func TestNewWantsAValidConfiguration(t *testing.T) {
	_, err := relay.New(config.Default(), nil)
	problems, is := errors.AsType[config.Problems](err)
	if !is || len(problems) != 2 {
		t.Errorf("the defaults: got %v, want two problems: no database, no driver", err)
	}
	if _, err := relay.New(config.Default(), unused{}, relay.WithPostgres(noPostgres{})); err != nil {
		t.Errorf("servers of one's own: got %v, want no problem", err)
	}
}

// Breaks it catches: metrics that a program's registry does not have, that stay there when the relay has ended, or
// that two relays share. Seen to fail with nothing registered, and with nothing taken back.
func TestMetricsJoinTheProgramsUntilTheRelayEnds(t *testing.T) {
	cfg := config.Default()
	registry := prometheus.NewRegistry()
	start := func(service string) (*relay.Relay, error) {
		cfg.Service = service
		return relay.New(cfg, unused{}, relay.WithPostgres(noPostgres{}), relay.WithRegisterer(registry))
	}
	count := func() (ours, others int) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if name := f.GetName(); strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				others++
			} else {
				ours++
			}
		}
		return ours, others
	}
	first, err := start("orders")
	if err != nil {
		t.Fatal(err)
	}
	had, others := count()
	if had < 20 || others != 0 {
		t.Errorf("got %d metrics of the relay and %d of the process, want all and none", had, others)
	}
	if _, err := start("orders"); err == nil || !strings.Contains(err.Error(), `service "orders"`) {
		t.Errorf("two of one service: got %v, want an error that names it", err)
	}
	if second, err := start("payments"); err != nil {
		t.Errorf("another service: got %v", err)
	} else if err := second.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Run(t.Context()); !errors.Is(err, errNoPostgres) {
		t.Errorf("run: got %v", err)
	}
	if left, _ := count(); left != 0 {
		t.Errorf("after the end: got %d metrics, want none", left)
	}
}
