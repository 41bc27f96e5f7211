package relay

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/relay/internal/meter"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

// restartReason is the label of a session's end; few values, none from data.
func restartReason(err error) string {
	if _, ok := errors.AsType[*replication.SilentError](err); ok {
		return meter.RestartSilent
	}
	if errors.Is(err, replication.ErrServerEnded) {
		return meter.RestartServerShutdown
	}
	for _, lost := range []error{errLeaseLost, errNotStreaming, store.ErrFenced, store.ErrLeaseLost} {
		if errors.Is(err, lost) {
			return meter.RestartLeaseLost
		}
	}
	return meter.RestartConnection
}
