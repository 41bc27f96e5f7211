package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/replication"
)

// Rows stand in the WAL as publication and table were when they were committed, and no repair changes that. So a slot may hold
// what cannot be read any more: the server refuses it, as the publication is younger, or a column had another name. The table
// has these rows as it is now. Once it and the publication are right, the relay makes a new slot, and the table comes first.

// refusal says what is the matter with the slot that a session could not read for that; empty if the error is another.
func refusal(err error) string {
	if _, ok := errors.AsType[*replication.PublicationMissingError](err); ok {
		return "is older than the publication, so that the server cannot decode what it holds"
	}
	if e, ok := errors.AsType[*decoder.ColumnError](err); ok {
		return fmt.Sprintf("holds rows of a time at which the outbox published no column %q, so that the relay cannot read them", e.Column)
	}
	return ""
}

// repaired says that a session ended because of what the slot holds, that its cause is gone, and that the next session may make a
// new slot.
func (r *Relay) repaired(ctx context.Context, err error) bool {
	if refusal(err) == "" || r.c.Postgres.OnSlotLost == config.SlotLostHalt {
		return false
	}
	bounded, cancel := context.WithTimeout(ctx, driftPatience)
	defer cancel()
	if _, err := r.store.Outbox(bounded); err != nil {
		return false
	}
	return Setup{Config: r.c, Store: r.store, Logger: r.log}.checkPublication(bounded, false) == nil
}
