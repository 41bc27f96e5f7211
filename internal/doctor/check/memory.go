package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// memory says whose what relays have recorded is: a start that would not go on with it halts.
func (e *postgresExam) memory() error {
	if e.table.OID == 0 || len(e.lacking) > 0 {
		return nil // said already
	}
	memories, err := e.store.Memories(e.ctx)
	if err != nil || len(memories) == 0 {
		return err
	}
	name, slot := "the relay's memory", e.cfg.Postgres.Slot
	at := slices.IndexFunc(memories, func(m store.Memory) bool { return m.Slot == slot && m.SystemID != "" })
	if at < 0 {
		e.otherMemories(name, memories)
		return nil
	}
	const fix = "if this is its new home, cdc-relay adopt; else correct postgres.url or outbox.table"
	switch m := memories[at]; {
	case e.systemID != "" && m.SystemID != e.systemID:
		e.add(Fail, name, fmt.Sprintf("is of server %s, and this is server %s", m.SystemID, e.systemID), fix)
	case m.TableOID != e.table.OID:
		e.add(Fail, name, fmt.Sprintf("is of another table of that name (oid %d; this one has %d)", m.TableOID, e.table.OID),
			fix)
	default:
		e.add(OK, name, "is of this slot, server and table", "")
	}
	return nil
}

// otherMemories are of other slots: the slot of the configuration is new.
func (e *postgresExam) otherMemories(name string, memories []store.Memory) {
	var there, gone []string
	for _, m := range memories {
		switch {
		case m.Slot == e.cfg.Postgres.Slot:
		case m.SlotThere:
			there = append(there, m.Slot)
		case m.Recorded:
			gone = append(gone, m.Slot)
		}
	}
	level := Fail
	if e.cfg.Postgres.AllowSecondSlot {
		level = Warn
	}
	switch {
	case len(there) > 0:
		e.add(level, name, "is of slot "+strings.Join(there, ", ")+", which this database has: under "+
			"slot "+e.cfg.Postgres.Slot+
			" every event would be published a second time", "set postgres.slot: "+there[0]+" for a standby or a restart")
	case len(gone) > 0:
		e.add(level, name, "is of slot "+strings.Join(gone, ", ")+", which this database does not have: under slot "+
			e.cfg.Postgres.Slot+" every event would be published again", "cdc-relay adopt carries it over")
	}
}
