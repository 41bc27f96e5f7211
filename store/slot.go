package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// SlotStatus is the slot's row of pg_replication_slots, and the end of the WAL to compare it with.
type SlotStatus struct {
	Exists, Active      bool
	ActivePID           uint32 // the walsender that holds it; 0 = none
	Plugin, Database    string
	Confirmed, Restart  outbox.LSN
	WALEnd              outbox.LSN // as written on this server; replayed, on a standby
	WALStatus           string     // reserved, extended, unreserved or lost
	SafeWALSize         *int64     // bytes until the slot is in danger; nil = no limit is set
	RetainedBytes       int64      // WAL that the slot keeps from removal
	Temporary, TwoPhase bool
	InvalidationReason  string // Postgres 17 and later
	Failover, Synced    bool   // Postgres 17 and later: it is kept on standbys; it is such a copy
	Recovery            bool   // this server is a standby
	TooLowWALLevel      string // the server's wal_level, if it makes no logical slot with that; PostgreSQL 19 raises it when it needs to
}

// Slot reads the slot's status; Exists is false, and WALEnd set, when there is none.
func (s *Store) Slot(ctx context.Context) (SlotStatus, error) {
	var st SlotStatus
	var confirmed, restart, end string
	err := s.one(ctx, reading, func(row pgx.Row) error {
		return row.Scan(&st.Exists, &st.Active, &st.ActivePID, &st.Plugin, &st.Database, &confirmed, &restart, &end,
			&st.WALStatus, &st.SafeWALSize, &st.RetainedBytes, &st.Temporary, &st.TwoPhase, &st.InvalidationReason,
			&st.Failover, &st.Synced, &st.Recovery, &st.TooLowWALLevel)
	}, `SELECT r.slot_name IS NOT NULL, coalesce(r.active, false), coalesce(r.active_pid, 0)::bigint, coalesce(r.plugin::text, ''),
 coalesce(r.database::text, ''), coalesce(r.confirmed_flush_lsn, '0/0')::text, coalesce(r.restart_lsn, '0/0')::text, w.lsn::text,
 coalesce(r.wal_status, ''), r.safe_wal_size, coalesce(w.lsn - r.restart_lsn, 0)::bigint, coalesce(r.temporary, false),
 coalesce(r.two_phase, false), coalesce(to_jsonb(r) ->> 'invalidation_reason', ''),
 coalesce((to_jsonb(r) ->> 'failover')::boolean, false), coalesce((to_jsonb(r) ->> 'synced')::boolean, false), pg_is_in_recovery(),
 CASE WHEN current_setting('wal_level') <> 'logical' AND current_setting('server_version_num')::int < 190000 THEN current_setting('wal_level') ELSE '' END
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_lsn() END AS lsn) w
LEFT JOIN pg_replication_slots r ON r.slot_name = $1`, s.config.Slot)
	if err != nil {
		return SlotStatus{}, fmt.Errorf("read the status of slot %q: %w", s.config.Slot, err)
	}
	for _, lsn := range []struct {
		to   *outbox.LSN
		text string
	}{{&st.Confirmed, confirmed}, {&st.Restart, restart}, {&st.WALEnd, end}} {
		if *lsn.to, err = outbox.ParseLSN(lsn.text); err != nil {
			return SlotStatus{}, fmt.Errorf("read the status of slot %q: %w", s.config.Slot, err)
		}
	}
	return st, nil
}

// Clock is the server's time.
func (s *Store) Clock(ctx context.Context) (t time.Time, err error) {
	err = s.one(ctx, reading, func(row pgx.Row) error { return row.Scan(&t) }, `SELECT clock_timestamp()`)
	return t, err
}

// EmitToken writes a message into the WAL in a transaction of its own, which is flushed to this server's disk when it
// returns: the stream delivers it after everything that committed before. The LSN is that of the message's record; its
// commit is later.
func (s *Store) EmitToken(ctx context.Context, prefix, content string) (outbox.LSN, error) {
	var text string
	err := s.one(ctx, limits{lock: writing.lock, statement: writing.statement, commit: flushed},
		func(row pgx.Row) error { return row.Scan(&text) },
		`SELECT pg_logical_emit_message(true, $1, $2::text)::text`, prefix, content)
	if err != nil {
		return 0, fmt.Errorf("write a token into the WAL: %w", err)
	}
	return outbox.ParseLSN(text)
}
