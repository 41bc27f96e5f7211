package config

import (
	"fmt"
	"strings"
)

// dryRun keeps a run that only prints away from what a relay to Kafka reads. What is printed counts as published: the
// slot never hands it out again, the journal has it, and a row that is marked, or gone, is not caught up.
func dryRun(key, allowed string, value func(*Config) string, safe func(string) bool) relation {
	return relation{
		keys:    []string{key, "sink"},
		allowed: "with sink stdout, " + allowed,
		check: func(c *Config) string {
			if v := value(c); c.Sink == SinkStdout && !safe(v) {
				return fmt.Sprintf("%q with sink %s", v, c.Sink)
			}
			return ""
		},
	}
}

// stdoutName ends the names of what belongs to a dry run.
const stdoutName = "_stdout"

func forStdout(name string) bool { return strings.HasSuffix(name, stdoutName) }

var dryRuns = []relation{
	dryRun("postgres.slot", "a slot of its own, whose name ends in "+stdoutName+
		", because what was printed counts as published there",
		func(c *Config) string { return c.Postgres.Slot }, forStdout),
	dryRun("postgres.schema", "a schema of its own, whose name ends in "+stdoutName+
		", because what was printed counts as published there",
		func(c *Config) string { return c.Postgres.Schema }, forStdout),
	dryRun("outbox.after_publish", AfterPublishKeep+", because a row that was printed is not published",
		func(c *Config) string { return c.Outbox.AfterPublish }, func(v string) bool { return v == AfterPublishKeep }),
}
