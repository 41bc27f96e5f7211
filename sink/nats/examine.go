package nats

import (
	"context"
	"fmt"
)

// unsynced is said of every server: none tells its clients how it is set.
const unsynced = "NATS does not tell clients its sync_interval: with the default an acknowledged message is on a " +
	"disk " +
	"after up to 2 minutes, and a power cut before that loses it. Set sync_interval: always in the servers' jetstream " +
	"block, or give streams 3 replicas on machines that do not lose power together; verify --repair publishes again " +
	"what " +
	"was lost"

// Examine connects and asks for JetStream, and for the stream of the subject, "" for none. It makes none. The text says
// what answered, and what it is not known to keep.
func (d *Driver) Examine(ctx context.Context, subject string) (text string, risky bool, err error) {
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
	if subject != "" {
		if _, err := d.find(ctx, nc, subject); err != nil {
			return "", false, err
		}
	}
	return fmt.Sprintf("nats-server %s at %s has JetStream, with %d streams in the account. %s",
		nc.ConnectedServerVersion(),
		nc.ConnectedUrlRedacted(), account.Streams, unsynced), true, nil
}
