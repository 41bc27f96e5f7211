package nats

import (
	"context"
	"fmt"
)

// Examine connects and asks for JetStream. The text says what answered. Nothing that could be risky is
// asked for.
func (d *Driver) Examine(ctx context.Context) (text string, risky bool, err error) {
	nc, err := d.connection(ctx)
	if err != nil {
		return "", false, err
	}
	var account struct {
		Streams int `json:"streams"`
		Limits  struct {
			MaxStreams int `json:"max_streams"`
		} `json:"limits"`
	}
	if err := question(ctx, nc, "INFO", struct{}{}, &account); err != nil {
		return "", false, fmt.Errorf("JetStream does not answer; enable it for the account: %w", err)
	}
	return fmt.Sprintf("nats-server %s at %s has JetStream, with %d streams in the account", nc.ConnectedServerVersion(),
		nc.ConnectedUrlRedacted(), account.Streams), false, nil
}
