package relay

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

// The labels of a session's end.
const (
	restartSilent         = "silent"
	restartServerShutdown = "server_shutdown"
	restartLeaseLost      = "lease_lost"
	restartConnection     = "connection"
)

// restartReason is the label of a session's end; few values, none from data.
func restartReason(err error) string {
	if _, ok := errors.AsType[*replication.SilentError](err); ok {
		return restartSilent
	}
	if errors.Is(err, replication.ErrServerEnded) {
		return restartServerShutdown
	}
	for _, lost := range []error{errLeaseLost, errNotStreaming, store.ErrFenced, store.ErrLeaseLost} {
		if errors.Is(err, lost) {
			return restartLeaseLost
		}
	}
	return restartConnection
}
