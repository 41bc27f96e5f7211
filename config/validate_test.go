package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

func ExampleConfig_Validate() {
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://app@db/shop"
	cfg.Postgres.PoolSize = -1
	fmt.Println(cfg.Validate())

	cfg.Postgres.PoolSize = 4
	cfg.Kafka.Brokers = []string{"kafka:9092"}
	fmt.Println(cfg.Validate())
	// Output:
	// the configuration has 2 problems:
	//   postgres.pool_size: found -1; allowed: a whole number from 1 to 200
	//   kafka.brokers: not set, and required; allowed: a list of host:port
	// <nil>
}

// Breaks it catches: a configuration made in code that is held to other rules than one that is loaded, a secret shown.
// Seen to fail with the rules between keys left out, with a zero that no rule allows passed over, and with the
// password shown.
func TestValidateHasTheRulesOfLoad(t *testing.T) {
	good := config.Default()
	good.Postgres.URL, good.Kafka.Brokers = "postgres://u:hunter2@db/d", []string{"a:1"}
	if err := good.Validate(); err != nil {
		t.Fatalf("a good one: got %v", err)
	}
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"another database": {func(c *config.Config) { c.Postgres.URL = "mysql://u:hunter2@h/d" },
			"postgres.url: found"},
		"a zero":   {func(c *config.Config) { c.Postgres.PoolSize = 0 }, "postgres.pool_size: found 0"},
		"a choice": {func(c *config.Config) { c.OnHalt = "run" }, "on_halt: found run"},
		"nothing to print to": {func(c *config.Config) { c.Sink, c.Kafka.Brokers = config.SinkStdout, nil },
			"postgres.slot"},
		"more breaker than there": {func(c *config.Config) { c.DLQ.Breaker.Ratio = 2 }, "dlq.breaker.ratio"},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		problems, is := errors.AsType[config.Problems](err)
		if !is || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v (%d problems), want %q, and no secret", name, err, len(problems), c.want)
		}
	}
}
