package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Slot reads the slot's status; Exists is false, and WALEnd set, when there is none.
func (s *Lease) Slot(ctx context.Context) (record.SlotStatus, error) {
	var st record.SlotStatus
	var confirmed, restart, end string
	err := s.db.One(ctx, db.Reading, func(row pgx.Row) error {
		return row.Scan(&st.Exists, &st.Active, &st.ActivePID, &st.Plugin, &st.Database, &st.Here, &confirmed, &restart, &end,
			&st.WALStatus, &st.SafeWALSize, &st.RetainedBytes, &st.Temporary, &st.TwoPhase, &st.InvalidationReason,
			&st.Failover, &st.Synced, &st.Recovery, &st.TooLowWALLevel)
	}, `SELECT r.slot_name IS NOT NULL, coalesce(r.active, false), coalesce(r.active_pid, 0)::bigint,
 coalesce(r.plugin::text, ''),
 coalesce(r.database::text, ''), current_database()::text, coalesce(r.confirmed_flush_lsn, '0/0')::text,
 coalesce(r.restart_lsn, '0/0')::text,
 w.lsn::text,
 coalesce(r.wal_status, ''), r.safe_wal_size, coalesce(w.lsn - r.restart_lsn, 0)::bigint, coalesce(r.temporary, false),
 coalesce(r.two_phase, false), coalesce(to_jsonb(r) ->> 'invalidation_reason', ''),
 coalesce((to_jsonb(r) ->> 'failover')::boolean, false), coalesce((to_jsonb(r) ->> 'synced')::boolean, false),
 pg_is_in_recovery(),
 CASE WHEN current_setting('wal_level') <> 'logical'
 AND current_setting('server_version_num')::int < 190000 THEN current_setting('wal_level') ELSE '' END
FROM (SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
 ELSE pg_current_wal_lsn() END AS lsn) w
LEFT JOIN pg_replication_slots r ON r.slot_name = $1`, s.db.Config.Slot)
	if err != nil {
		return record.SlotStatus{}, fmt.Errorf("read the status of slot %q: %w", s.db.Config.Slot, err)
	}
	for _, lsn := range []struct {
		to   *outbox.LSN
		text string
	}{{&st.Confirmed, confirmed}, {&st.Restart, restart}, {&st.WALEnd, end}} {
		if *lsn.to, err = outbox.ParseLSN(lsn.text); err != nil {
			return record.SlotStatus{}, fmt.Errorf("read the status of slot %q: %w", s.db.Config.Slot, err)
		}
	}
	return st, nil
}

// Clock is the server's time.
func (s *Lease) Clock(ctx context.Context) (t time.Time, err error) {
	err = s.db.One(ctx, db.Reading, func(row pgx.Row) error { return row.Scan(&t) }, `SELECT clock_timestamp()`)
	return t, err
}

// EmitToken writes a message into the WAL in a transaction of its own, which is flushed to this server's disk when it
// returns: the stream delivers it after everything that committed before. The LSN is that of the message's record; its
// commit is later.
func (s *Lease) EmitToken(ctx context.Context, prefix, content string) (outbox.LSN, error) {
	var text string
	err := s.db.One(ctx, db.Limits{Lock: db.Writing.Lock, Statement: db.Writing.Statement, Commit: db.Flushed},
		func(row pgx.Row) error { return row.Scan(&text) },
		`SELECT pg_logical_emit_message(true, $1, $2::text)::text`, prefix, content)
	if err != nil {
		return 0, fmt.Errorf("write a token into the WAL: %w", err)
	}
	return outbox.ParseLSN(text)
}
