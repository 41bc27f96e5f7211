package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// adopting waits for another adoption; it touches a row for each batch of the journal that is not deleted yet.
var adopting = db.Limits{Lock: 10 * time.Second, Statement: 10 * time.Minute, Commit: db.Durable}

// memoriesSQL reads the sources that the outbox could claim: of the same slot, of the same table, or of a table of the
// same name.
const memoriesSQL = `SELECT s.source, s.slot, s.table_oid, s.table_name,
 coalesce(t.system_id, ''), coalesce(t.timeline, 0),
 EXISTS (SELECT FROM {journal} j WHERE j.source = s.source) OR EXISTS (SELECT FROM {parked} p WHERE p.source = s.source)
  OR EXISTS (SELECT FROM {dlq} d WHERE d.source = s.source), r.slot_name IS NOT NULL, coalesce(r.active_pid, 0)
FROM {source} s LEFT JOIN {state} t ON t.source = s.source
LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot AND r.plugin = 'pgoutput' AND r.database = current_database()
WHERE s.slot = $1 OR s.table_oid = ANY ($2::oid[]) OR s.table_name = ANY ($3) ORDER BY s.created_at DESC, s.source`

// Memories lists what relays have recorded in this schema under the slot, for the outbox, or for a table of its name;
// latest first. It is empty where no relay has run.
func (s *Lease) Memories(ctx context.Context) ([]record.Memory, error) {
	o, err := s.db.ReadTable(ctx)
	if err != nil {
		return nil, err
	}
	var found []record.Memory
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
		found, err = s.memories(ctx, tx, []uint32{o.OID}, []string{s.tableName()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for what relays have recorded: %w", err)
	}
	return found, nil
}

// MemoriesOf is Memories for several tables.
func (s *Lease) MemoriesOf(ctx context.Context, tables []record.Named) (found []record.Memory, err error) {
	oids, names := make([]uint32, len(tables)), make([]string, len(tables))
	for i, t := range tables {
		oids[i], names[i] = t.OID, t.Schema+"."+t.Name
	}
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
		found, err = s.memories(ctx, tx, oids, names)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for what relays have recorded: %w", err)
	}
	return found, nil
}

func (s *Lease) memories(ctx context.Context, tx pgx.Tx, tables []uint32, names []string) ([]record.Memory, error) {
	var there bool
	err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.db.Names.Source).Scan(&there)
	if err != nil || !there {
		return nil, err
	}
	rows, err := tx.Query(ctx, s.db.Names.SQL(memoriesSQL), s.db.Config.Slot, tables, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (m record.Memory, err error) {
		err = row.Scan(&m.Source, &m.Slot, &m.TableOID, &m.TableName, &m.SystemID, &m.Timeline,
			&m.Recorded, &m.SlotThere, &m.SlotPID)
		return m, err
	})
}

func (s *Lease) tableName() string { return s.db.Names.OutboxSchema + "." + s.db.Names.OutboxTable }

// Adopt makes what relays have recorded under another slot, on another server, or for an earlier table of the outbox's
// name this configuration's own. The source's number stays, and with it every journal row, parked event, dead letter
// and decision, however many; what changes is whom it stands for. One durable transaction; the epoch rises, so that a
// former owner is fenced. The next start publishes from the table first what is unrecorded, and reads the topics back.
// A memory that is at home already is left alone, or read back only when the database was restored.
// An *[record.AdoptError] says what a person has to do first.
func (s *Lease) Adopt(ctx context.Context, home record.Home) (a record.Adoption, err error) {
	o, err := s.db.ReadTable(ctx)
	if err != nil {
		return a, err
	}
	a.TableOID = o.OID
	err = s.db.Tx(ctx, adopting, func(tx pgx.Tx) error { return s.adopt(ctx, tx, home, &a) })
	if errors.As(err, new(*record.AdoptError)) {
		return a, err
	}
	if err != nil {
		return a, fmt.Errorf("adopt what relays have recorded: %w", err)
	}
	s.db.SetSource(0, 0) // the slot may stand for another source now
	return a, nil
}

func (s *Lease) adopt(ctx context.Context, tx pgx.Tx, home record.Home, a *record.Adoption) error {
	if err := s.slotIsHere(ctx, tx); err != nil {
		return err
	}
	all, err := s.memories(ctx, tx, []uint32{a.TableOID}, []string{s.tableName()})
	if err != nil {
		return err
	}
	if a.From, err = s.chooseMemory(all, home.From); err != nil {
		return err
	}
	err = tx.QueryRow(ctx, s.db.Names.SQL(`SELECT (SELECT count(*) FROM {parked} WHERE source = $1),
 count(*) FILTER (WHERE discarded_at IS NULL AND replayed_at IS NULL), count(*) FILTER (WHERE discarded_at IS NOT NULL),
 (SELECT coalesce(sum(events), 0) FROM {spool} WHERE source = $1)
FROM {dlq} WHERE source = $1`), a.From.Source).Scan(&a.Parked, &a.DeadLetters, &a.Discarded, &a.Spooled)
	if err != nil {
		return err
	}
	a.AtHome = a.From.Slot == s.db.Config.Slot && a.From.SystemID == home.SystemID && a.From.TableOID == a.TableOID
	switch {
	case home.Dry:
		return nil
	case !a.AtHome:
		return s.moveMemory(ctx, tx, a, home)
	case home.Restored:
		return s.distrust(ctx, tx)
	}
	return nil
}

// slotIsHere refuses a slot name that another database of the server, or another kind of slot, has: no start could go
// on under it.
func (s *Lease) slotIsHere(ctx context.Context, tx pgx.Tx) error {
	st := record.SlotStatus{Exists: true}
	err := tx.QueryRow(ctx, `SELECT coalesce(plugin::text, ''), coalesce(database::text, ''), current_database()::text
FROM pg_replication_slots WHERE slot_name = $1`, s.db.Config.Slot).Scan(&st.Plugin, &st.Database, &st.Here)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if why := st.Mismatch(); why != "" {
		return refused(record.OtherSlotName, "the slot %q cannot be used: %s", s.db.Config.Slot, why)
	}
	return nil
}

// chooseMemory is the one that is meant, if no one uses it.
func (s *Lease) chooseMemory(all []record.Memory, from string) (m record.Memory, err error) {
	var present, others []record.Memory
	for _, m := range all {
		switch {
		case m.Slot == s.db.Config.Slot && m.SystemID != "": // what the slot stands for at present
			present = append(present, m)
		case from != "" && m.Slot != from:
		default:
			others = append(others, m)
		}
	}
	table := s.tableName()
	switch {
	case len(present) > 0 && len(others) > 0 && others[0].Slot != s.db.Config.Slot:
		err = refused("two memories cannot become one; set postgres.slot to an unused name, and choose one by --from",
			"slot %q already has records, and so does %s", s.db.Config.Slot, slotList(others))
	case len(present) > 0 && from != "" && from != s.db.Config.Slot:
		err = refused("see the slots in cdc_relay_source, and correct --from",
			"slot %q already has records, and none exist for table %s under slot %q",
			s.db.Config.Slot, table, from)
	case len(present) > 0:
		m = present[0]
	case len(others) == 0 && from != "":
		err = refused("see the slots in cdc_relay_source, and correct --from or postgres.schema",
			"no relay has recorded anything for table %s under slot %q", table, from)
	case len(others) == 0:
		err = refused("restore the relay's tables, or correct postgres.schema; without them this is a first start",
			"no relay has recorded anything for table %s in schema %s", table, s.db.Config.Schema)
	case len(others) > 1 && others[0].Slot != others[1].Slot:
		err = refused("name one by --from SLOT",
			"several relays have records for table %s: %s", table, slotList(others))
	default:
		m = others[0] // the latest of one slot
	}
	if err == nil {
		err = s.unused(m)
	}
	return m, err
}

// unused refuses a memory that a slot of this server may still add to.
func (s *Lease) unused(m record.Memory) error {
	switch {
	case m.SlotPID != 0:
		return refused("stop that relay first",
			"a relay streams from slot %q (pid %d) and uses the memory", m.Slot, m.SlotPID)
	case m.SlotThere && m.Slot != s.db.Config.Slot:
		return refused(fmt.Sprintf("continue with it by setting postgres.slot: %s; if that relay is retired, "+
			"cdc-relay slot drop --postgres-slot %s, with that relay's configuration, first shows whose the slot is",
			m.Slot, m.Slot),
			"this database still has the slot %q, which keeps what that relay has not read", m.Slot)
	}
	return nil
}

func refused(remedy, reason string, args ...any) error {
	return &record.AdoptError{Reason: fmt.Sprintf(reason, args...), Remedy: remedy}
}

func slotList(all []record.Memory) string {
	var names []string
	for _, m := range all {
		names = append(names, fmt.Sprintf("slot %q", m.Slot))
	}
	return strings.Join(names, ", ")
}

// moveMemory renames whom the memory stands for. Batches of the journal carry positions of the WAL that they were
// written in; those beyond the end of this server's would keep rows from being deleted, and batches from being pruned,
// until it gets there. A dead letter that is resolved waits for nothing but that, and for no place in its lane.
func (s *Lease) moveMemory(ctx context.Context, tx pgx.Tx, a *record.Adoption, home record.Home) error {
	m, slot := a.From, s.db.Config.Slot
	steps := []struct {
		what, text string
		args       []any
	}{
		{"forget a source that stands for nothing", `DELETE FROM {source} s
WHERE slot = $1 AND table_oid = $2::oid AND source <> $3 AND NOT EXISTS (SELECT FROM {journal} WHERE source = s.source)
 AND NOT EXISTS (SELECT FROM {state} WHERE source = s.source)`,
			[]any{slot, a.TableOID, m.Source}},
		{"rename the source", `UPDATE {source} SET slot = $1, table_oid = $2::oid, table_name = $3, former_systems =
 CASE WHEN $4 IN ('', $5) OR $4 = ANY (former_systems) THEN former_systems ELSE array_append(former_systems, $4) END
WHERE source = $6`,
			[]any{slot, a.TableOID, s.tableName(), m.SystemID, home.SystemID, m.Source}},
		{"move the state", `UPDATE {state} SET slot = $1, source = $2, system_id = $3, timeline = $4,
 ` + settled + `, phase = 'catch_up',
 catch_up_ready = false, catch_up_late = false, dirty = true, confirmed = '0/0', updated_at = now() WHERE slot = $5`,
			[]any{slot, m.Source, home.SystemID, home.Timeline, m.Slot}},
		{"raise the epoch", `UPDATE {epoch} SET slot = $1, epoch = epoch + 1, taken_lsn = NULL WHERE slot = $2`,
			[]any{slot, m.Slot}},
		{"move the offsets", `UPDATE {offset} SET slot = $1 WHERE slot = $2`, []any{slot, m.Slot}},
		{"move what people asked for", `UPDATE {request} SET slot = $1 WHERE slot = $2`,
			[]any{slot, m.Slot}},
		{"forget the list of rows to catch up", `DELETE FROM {catch_up} WHERE source = $1`, []any{m.Source}},
		{"place the journal in this server's WAL", `UPDATE {batch} SET wal_lsn = pg_current_wal_insert_lsn()
WHERE source = $1 AND wal_lsn > pg_current_wal_insert_lsn()`, []any{m.Source}},
		{"place resolved dead letters, too", `UPDATE {dlq} SET from_stream = false
WHERE source = $1 AND (replayed_at IS NOT NULL OR discarded_at IS NOT NULL)`, []any{m.Source}},
	}
	for _, step := range steps {
		if _, err := tx.Exec(ctx, s.db.Names.SQL(step.text), step.args...); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return s.raiseNumbers(ctx, tx)
}

// distrust makes the next start read the topics back and look ids up, as after a crash, whatever the state says.
func (s *Lease) distrust(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, s.db.Names.SQL(`WITH raised AS (UPDATE {epoch} SET epoch = epoch + 1 WHERE slot = $1)
UPDATE {state} SET dirty = true, updated_at = now() WHERE slot = $1`), s.db.Config.Slot)
	if err != nil {
		return fmt.Errorf("request that the topics be read back: %w", err)
	}
	return nil
}

// raiseNumbers sets the sequences of the relay's tables beyond the rows: logical replication copies rows and leaves
// sequences where they were, and the first new batch of the journal would have the number of an old one.
func (s *Lease) raiseNumbers(ctx context.Context, tx pgx.Tx) error {
	n := s.db.Names
	rows, err := tx.Query(ctx, `SELECT attrelid::regclass::text, quote_ident(attname), attname FROM pg_attribute
WHERE attrelid = ANY ($1::text[]::regclass[]) AND attidentity <> ''`,
		[]string{n.Source, n.Batch, n.Parked, n.DLQ, n.Request, n.Alarms, n.Edit})
	if err != nil {
		return fmt.Errorf("look for sequences: %w", err)
	}
	type number struct{ Table, Column, Name string }
	numbers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[number])
	if err != nil {
		return fmt.Errorf("look for sequences: %w", err)
	}
	for _, c := range numbers {
		_, err := tx.Exec(ctx, fmt.Sprintf(`SELECT setval(q.name, t.highest)
FROM (SELECT max(%s) AS highest FROM %s) t, (SELECT pg_get_serial_sequence($1, $2)::regclass AS name) q
WHERE t.highest > coalesce(pg_sequence_last_value(q.name), 0)`, c.Column, c.Table), c.Table, c.Name)
		if err != nil {
			return fmt.Errorf("set the sequence of %s: %w", c.Table, err)
		}
	}
	return nil
}
