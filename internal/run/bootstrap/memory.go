package bootstrap

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// checkMemory refuses a first start under a slot name where relays have published from this table under another: the
// journal of that one would not count, so that its events would be published again, a discarded dead letter among them.
func (s Setup) checkMemory(ctx context.Context, f *found) error {
	if f.state != nil || s.Config.Postgres.AllowSecondSlot {
		return nil
	}
	memories, err := s.Store.Memories(ctx)
	if err != nil {
		return explainStore(err)
	}
	var running, gone []string
	for _, m := range memories {
		switch {
		case m.Slot == s.Config.Postgres.Slot: // for a table that is gone; it begins again
		case m.SlotThere:
			running = append(running, m.Slot)
		case m.Recorded:
			gone = append(gone, m.Slot)
		}
	}
	if len(running)+len(gone) == 0 {
		return nil
	}
	return secondSlot(s.Config.Outbox.Named(), s.Config.Postgres.Slot, running, gone)
}

func secondSlot(table, slot string, running, gone []string) *halt.Error {
	h := &halt.Error{Code: halt.SecondSlot,
		Risk: "a relay under another slot does not know what that one has published: every event would be published again"}
	if len(running) > 0 {
		h.Reason = fmt.Sprintf("a relay publishes from table %s by slot %s already, which this database has; "+
			"this one would be the second, by slot %q", table, quoted(running), slot)
		h.Remedy = fmt.Sprintf("for a standby or a restart set postgres.slot: %s; to publish every event twice on purpose, "+
			"to other topics for example, set postgres.allow_second_slot: true", running[0])
		return h
	}
	h.Reason = fmt.Sprintf("a relay has published from table %s by slot %s, which this database does not have; this one "+
		"begins under slot %q", table, quoted(gone), slot)
	h.Remedy = "if this relay is to go on where that one stopped, on this server or moved from another one, run " +
		"cdc-relay adopt; if it is to begin with nothing published, set postgres.allow_second_slot: true"
	return h
}

func quoted(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(list, " and ")
}

// otherTable is the halt for an outbox that is not the table that the state was written for: on another server, or made
// again on this one.
func (s Setup) otherTable(ctx context.Context, state *store.State, table store.Outbox) error {
	system, err := s.Server.Identify(ctx, s.Replication)
	if err != nil {
		return err
	}
	if system.ID != state.SystemID {
		return halt.WrongServer(system.ID, state.SystemID)
	}
	return &halt.Error{Code: halt.OtherTable,
		Reason: fmt.Sprintf("the outbox %s is another table than the one that the slot %q was used for (oid %d, was %d)",
			s.Config.Outbox.Named(), s.Config.Postgres.Slot, table.OID, state.TableOID),
		Risk: "rows that were committed into either table around the exchange may not be in the stream",
		Remedy: "if the table was swapped by mistake, swap it back; if this one holds the same events, or goes on with " +
			"ids that were not used, run cdc-relay adopt; if its ids begin again, set postgres.slot to a new name and " +
			"postgres.allow_second_slot: true"}
}
