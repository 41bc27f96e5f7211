package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A nil error that is marked stays nil. Seen to fail with marks around nil: reading the error's text ended the process.
func TestMarksOfNilAreNil(t *testing.T) {
	for name, err := range map[string]error{
		"Permanent": Permanent(nil), "Outage": Outage(nil), "RetryAfter": RetryAfter(time.Second, nil),
	} {
		if err != nil {
			t.Errorf("%s(nil): got an error, want nil", name)
		}
	}
}

// What is wrong is said before anything runs. A nil pool panicked once, and the others passed.
func TestMisuseIsRefused(t *testing.T) {
	if _, err := New(nil, Config{}); err == nil || !strings.Contains(err.Error(), "pool is nil") {
		t.Errorf("a nil pool: got %v", err)
	}
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?pool_max_conns=4")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	config := Config{Name: "billing", Brokers: []string{"127.0.0.1:1"}, Topics: []string{"order"}}
	wrong := config
	wrong.HandlerTimeout, wrong.Keep, wrong.Retry.MaxBackoff = -time.Second, -1, -1
	if _, err := New(pool, wrong); err == nil || strings.Count(err.Error(), "negative") != 3 {
		t.Errorf("negative durations: got %v, want three named", err)
	}
	odd := config
	odd.Brokers, odd.Topics, odd.Start, odd.Unknown = []string{""}, []string{"a", ""}, 7, 7
	odd.Retry = Retry{OnDead: 7, Jitter: -0.1, Schedule: []time.Duration{-1}}
	_, err = New(pool, odd)
	for _, want := range []string{"Brokers has", "Topics has", "Start is", "Unknown is", "OnDead is", "Jitter is",
		"Schedule has"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a configuration that cannot be: got %v, want %q", err, want)
		}
	}
	if err := Migrate(t.Context(), nil, ""); err == nil || !strings.Contains(err.Error(), "pool is nil") {
		t.Errorf("Migrate with a nil pool: got %v", err)
	}
	for _, of := range [][2]string{{"", "7"}, {"billing", ""}} {
		if _, err := WaitHandled(t.Context(), pool, "", of[0], of[1]); err == nil ||
			!strings.Contains(err.Error(), "needs the name") {
			t.Errorf("WaitHandled of %q: got %v", of, err)
		}
	}
	handle := func(context.Context, pgx.Tx, Event[string]) error { return nil }
	for want, register := range map[string]func(*Consumer){
		"no handler":        func(*Consumer) {},
		"is nil":            func(c *Consumer) { On[string](c, "OrderPlaced", nil) },
		"empty type":        func(c *Consumer) { On(c, "", handle) },
		"two handlers":      func(c *Consumer) { On(c, "OrderPlaced", handle); On(c, "OrderPlaced", handle) },
		`type "A" is nil`:   func(c *Consumer) { OnBatch[string](c, "A", nil) },
		"wrapper is nil":    func(c *Consumer) { On(c, "A", handle); c.Use(nil) },
		"want at least 1":   func(c *Consumer) { On(c, "A", handle); c.Limit("A", 0) },
		"two limits":        func(c *Consumer) { On(c, "A", handle); c.Limit("A", 1); c.Limit("A", 2) },
		"without a handler": func(c *Consumer) { On(c, "A", handle); c.Limit("B", 1) },
	} {
		c, err := New(pool, config)
		if err != nil {
			t.Fatal(err)
		}
		register(c)
		if err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		var log strings.Builder
		c.config.Log = slog.New(slog.NewTextHandler(&log, nil))
		if On(c, "Late", handle); !strings.Contains(log.String(), "after Run") || c.handlers["Late"] != nil {
			t.Errorf("a handler that is registered after Run: got %q, want an error that says so", log.String())
		}
	}
}

type seenTypes struct {
	Metrics
	types map[string]int
}

func (s *seenTypes) HandlerNotFoundFor(eventType string) { s.types[eventType]++ }

// Break it catches: a label for each type that a topic names.
func TestTypesWithoutAHandlerAreBounded(t *testing.T) {
	c, m := &Consumer{unhandled: map[string]bool{}}, &seenTypes{types: map[string]int{}}
	for range 2 {
		for n := range 60 {
			c.notFound(m, fmt.Sprint("type", n))
		}
	}
	if len(m.types) != 51 || m.types["type0"] != 2 || m.types[unknownType] != 20 {
		t.Errorf("types: got %v, want 50 and those beyond as unknown", m.types)
	}
}
