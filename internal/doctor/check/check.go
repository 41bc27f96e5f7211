// Package check is the doctor: it looks at everything that a relay needs, in Postgres and at the brokers, and reports
// for each thing whether it is right, with the fix where it is not. It changes nothing, and prints nothing.
//
// Tested by the command check, on real servers (cmd/cdc-relay); what only compares names is tested here.
package check

import (
	"context"
	"errors"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // it works, and a person should know
	Fail Level = "FAIL" // a relay would not work, or would lose events
)

// Finding is the result of one check.
type Finding struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty"`
}

// Report collects findings in the order in which things are looked at.
type Report struct {
	OK     bool      `json:"ok"` // nothing fails
	Checks []Finding `json:"checks"`
}

func (r *Report) add(l Level, name, text, fix string) {
	r.Checks = append(r.Checks, Finding{Name: name, Level: l, Text: text, Fix: fix})
}

// fixable is an error that says what to do about it.
type fixable interface {
	error
	Fix() string
}

// Everything looks at the database, then at the brokers and the schema registry.
func Everything(ctx context.Context, cfg config.Config) Report {
	var r Report
	examinePostgres(ctx, cfg, &r)
	switch cfg.Sink {
	case config.SinkStdout:
		r.add(OK, "sink", "messages are printed to standard output and go to no broker", "")
	case config.SinkKafka:
		known := chosenTopics(ctx, cfg, &r)
		examineKafka(ctx, cfg, &r, known)
		examineRegistry(ctx, cfg, &r, known)
	default:
		known := chosenTopics(ctx, cfg, &r)
		switch text, risky, err := brokers.Examine(ctx, cfg, known.events); {
		case err != nil:
			fix := "check the keys of the sink, the network and that the server runs"
			if known, knows := errors.AsType[fixable](err); knows {
				fix = known.Fix()
			}
			r.add(Fail, "sink "+cfg.Sink, strings.ReplaceAll(err.Error(), "\n", "; "), fix)
		case risky:
			r.add(Warn, "sink "+cfg.Sink, text, "")
		default:
			r.add(OK, "sink "+cfg.Sink, text, "")
		}
	}
	return r.closed()
}

// Postgres looks at the database only.
func Postgres(ctx context.Context, cfg config.Config) Report {
	var r Report
	examinePostgres(ctx, cfg, &r)
	return r.closed()
}

// Brokers looks at the brokers and the topics only.
func Brokers(ctx context.Context, cfg config.Config) Report {
	var r Report
	examineKafka(ctx, cfg, &r, chosen{})
	return r.closed()
}

func (r Report) closed() Report {
	r.OK = true
	for _, f := range r.Checks {
		r.OK = r.OK && f.Level != Fail
	}
	return r
}
