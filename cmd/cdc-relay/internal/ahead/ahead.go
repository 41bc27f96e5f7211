// Package ahead has a start say in the log what check would say of brokers and topics, so that it does not take another
// command to tell what will go wrong. Nothing waits for it: the sink waits for brokers that are away.
package ahead

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
)

// patience bounds how long the look at the brokers may take.
const patience = 30 * time.Second

// Look logs every finding that is not ok.
func Look(ctx context.Context, cfg config.Config, log zerolog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
