package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// This file looks at and changes a slot that is not in use.

// SlotMissingError reports that the slot does not exist on this server.
type SlotMissingError struct{ Slot string }

func (e *SlotMissingError) Error() string {
	return fmt.Sprintf("replication slot %q does not exist on this server", e.Slot)
}

// SlotBusyError reports that another backend streams from the slot (SQLSTATE 55006).
type SlotBusyError struct {
	Slot string
	PID  int64 // 0: not known
}

func (e *SlotBusyError) Error() string {
	return fmt.Sprintf("replication slot %q is in use by backend %d", e.Slot, e.PID)
}

// SlotLostError reports that the server has invalidated the slot, which can never stream again.
type SlotLostError struct{ Slot, Why string }

func (e *SlotLostError) Error() string {
	return fmt.Sprintf("replication slot %q is lost: %s", e.Slot, e.Why)
}

// SlotMismatchError reports that the slot belongs to something else, such as another plugin or database.
type SlotMismatchError struct{ Slot, Why string }

func (e *SlotMismatchError) Error() string {
	return fmt.Sprintf("replication slot %q cannot be used: %s", e.Slot, e.Why)
}

// Invalidated explains why the server invalidated a slot, as the end of a sentence about the slot. reason is
// invalidation_reason of pg_replication_slots, empty before PostgreSQL 17.
func Invalidated(reason string) string {
	switch reason {
	case "":
		return "was invalidated (wal_status lost, without a reason: usually the server removed WAL that it needed, see " +
			"max_slot_wal_keep_size)"
	case "wal_removed":
		return "was invalidated (wal_removed: the server removed WAL that it needed, see max_slot_wal_keep_size)"
	case "idle_timeout":
		return "was invalidated (idle_timeout: unused for longer than idle_replication_slot_timeout)"
	}
	return "was invalidated (" + reason + ")"
}

// slot reads the slot's confirmed_flush_lsn and refuses slots that cannot serve this stream, and a server that would
// have its commits wait for it.
func (l *link) slot(ctx context.Context, name string) (outbox.LSN, error) {
	// The name is checked by validate; a replication connection has no extended protocol to bind it.
	sql := `SELECT slot_type, coalesce(plugin, ''), coalesce(database, ''), current_database(), coalesce(wal_status, ''),
		coalesce(confirmed_flush_lsn::text, '0/0'), coalesce(to_jsonb(r) ->> 'invalidation_reason', ''),
		current_setting('synchronous_standby_names'), current_setting('application_name')
		FROM pg_replication_slots r WHERE slot_name = '` + name + `'`
	results, err := l.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("read slot %q: %w", name, err)
	}
	if len(results) != 1 || len(results[0].Rows) == 0 {
		return 0, &SlotMissingError{Slot: name}
	}
	row := results[0].Rows[0]
	kind, plugin, database, here, status := string(row[0]), string(row[1]), string(row[2]), string(row[3]), string(row[4])
	switch {
	case kind == "logical" && database != here:
		return 0, notHere(name, database, here)
	case kind != "logical" || plugin != "pgoutput":
		return 0, &SlotMismatchError{Slot: name, Why: fmt.Sprintf("it is a %s slot with plugin %q; a logical slot with "+
			"pgoutput is needed", kind, plugin)}
	case status == "lost":
		return 0, &SlotLostError{Slot: name, Why: "it " + Invalidated(string(row[6]))}
	case NamesStandby(string(row[7]), string(row[8])):
		return 0, &SynchronousStandbyError{ApplicationName: string(row[8]), Names: string(row[7])}
	}
	return outbox.ParseLSN(string(row[5]))
}

func notHere(name, database, here string) error {
	return &SlotMismatchError{Slot: name,
		Why: fmt.Sprintf("it belongs to database %q and this connection is to %q", database, here)}
}

// ours refuses a slot of another database: the server drops any slot by its name, whichever database a connection is
// to. It leaves a name that no slot has to the server.
func (l *link) ours(ctx context.Context, name string) error {
	results, err := l.conn.Exec(ctx, `SELECT coalesce(database, ''), current_database() FROM pg_replication_slots `+
		`WHERE slot_name = '`+name+`'`).ReadAll()
	if err != nil {
		return fmt.Errorf("read slot %q: %w", name, err)
	}
	for _, r := range results {
		for _, row := range r.Rows {
			if database, here := string(row[0]), string(row[1]); database != here {
				return notHere(name, database, here)
			}
		}
	}
	return nil
}

// CreateSlot creates the logical slot and returns the position from which it is consistent. The server waits for every
// transaction that runs at this moment, prepared ones too, so the context should have a deadline.
func CreateSlot(ctx context.Context, c Config) (outbox.LSN, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return 0, err
	}
	defer l.close()
	// The library knows no FAILOVER. The row is slot_name, consistent_point, snapshot_name, output_plugin.
	results, err := l.conn.Exec(ctx, `CREATE_REPLICATION_SLOT "`+c.Slot+`" LOGICAL pgoutput `+l.slotOptions()).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("create replication slot %q: %w", c.Slot, refusedSlot(err))
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) < 2 {
		return 0, fmt.Errorf("create replication slot %q: the server's answer has another form", c.Slot)
	}
	return outbox.ParseLSN(string(results[0].Rows[0][1]))
}

// refusedSlot adds to what the server says what a person can do.
func refusedSlot(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pg.Code == "55000" && strings.Contains(pg.Message, "wal_level"): // object_not_in_prerequisite_state
		return &NoDecodingError{Said: pg.Message}
	case ok && pg.Code == "53400": // configuration_limit_exceeded
		return fmt.Errorf("%w; raise max_replication_slots and restart Postgres, or ask the owners of unused slots to "+
			"remove "+
			"them (SELECT slot_name, database, plugin, active FROM pg_replication_slots)", err)
	}
	return err
}

// slotOptions ask for a slot that a standby may keep a copy of, where the server can: with sync_replication_slots
// there, the slot survives a promotion.
func (l *link) slotOptions() string {
	if l.version() >= failoverVersion {
		return `(SNAPSHOT 'nothing', FAILOVER true)`
	}
	return `NOEXPORT_SNAPSHOT`
}

// DropSlot drops the slot, which must not be in use.
func DropSlot(ctx context.Context, c Config) error {
	return dropSlot(ctx, c, pglogrepl.DropReplicationSlotOptions{})
}

// DropSlotWhenFree drops the slot as soon as it is unused: a walsender holds it for a moment after its client has
// gone.
func DropSlotWhenFree(ctx context.Context, c Config) error {
	return dropSlot(ctx, c, pglogrepl.DropReplicationSlotOptions{Wait: true})
}

func dropSlot(ctx context.Context, c Config, how pglogrepl.DropReplicationSlotOptions) error {
	l, err := dial(ctx, c)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.ours(ctx, c.Slot); err != nil {
		return fmt.Errorf("drop replication slot %q: %w", c.Slot, err)
	}
	if err := pglogrepl.DropReplicationSlot(ctx, l.conn, c.Slot, how); err != nil {
		return fmt.Errorf("drop replication slot %q: %w", c.Slot, err)
	}
	return nil
}

// AdvanceSlot moves the slot, which must not be in use, forward without sending anything. It returns the slot's new
// position: the end of a commit at or behind to.
func AdvanceSlot(ctx context.Context, c Config, to outbox.LSN) (outbox.LSN, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return 0, err
	}
	defer l.close()
	if err := l.ours(ctx, c.Slot); err != nil {
		return 0, fmt.Errorf("advance replication slot %q: %w", c.Slot, err)
	}
	results, err := l.conn.Exec(ctx, `SELECT end_lsn FROM pg_replication_slot_advance('`+c.Slot+`', '`+to.String()+
		`')`).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("advance replication slot %q: %w", c.Slot, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return 0, fmt.Errorf("advance replication slot %q: the server's answer has another form", c.Slot)
	}
	return outbox.ParseLSN(string(results[0].Rows[0][0]))
}
