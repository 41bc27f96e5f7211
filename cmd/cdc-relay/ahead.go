package main

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
)

// lookPatience bounds how long the look at the brokers may take.
const lookPatience = 30 * time.Second

// lookAhead logs what check would report about brokers and topics, so that a start shows what will go wrong. Nothing
// waits for it: the sink waits for brokers that are away.
func lookAhead(ctx context.Context, cfg config.Config, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	report := check.Brokers(ctx, cfg)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // stopping
	}
	for _, f := range report.Checks {
		severity := map[check.Level]zerolog.Level{check.Warn: zerolog.WarnLevel, check.Fail: zerolog.ErrorLevel}[f.Level]
		if f.Level != check.OK {
			log.WithLevel(severity).Str("check", f.Name).Str("fix", f.Fix).Msg(f.Text)
		}
	}
}
