-- The clock, the WAL and the slots of a world that is made up, in place of the server's own. Each has the name and the
-- columns of what it stands for, so that the statements of package store find it.
SET allow_system_table_mods = on;
CREATE SCHEMA made_up;
CREATE TABLE made_up.world (now timestamptz NOT NULL, wal pg_lsn NOT NULL);
INSERT INTO made_up.world VALUES ('2000-01-01', '0/1');
CREATE TABLE made_up.slots (slot_name name PRIMARY KEY, confirmed pg_lsn NOT NULL, active_pid integer,
    wal_status text NOT NULL);
CREATE FUNCTION made_up.tell_slots(list jsonb) RETURNS void LANGUAGE sql AS $$
DELETE FROM made_up.slots;
INSERT INTO made_up.slots SELECT s.* FROM jsonb_populate_recordset(NULL::made_up.slots,
    CASE jsonb_typeof(list) WHEN 'array' THEN list ELSE '[]' END) s $$;

ALTER FUNCTION pg_catalog.now() RENAME TO real_now;
CREATE FUNCTION pg_catalog.now() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT now FROM made_up.world';
ALTER FUNCTION pg_catalog.clock_timestamp() RENAME TO real_clock_timestamp;
CREATE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS 'SELECT now FROM made_up.world';
ALTER FUNCTION pg_catalog.pg_current_wal_lsn() RENAME TO real_current_wal_lsn;
CREATE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn STABLE LANGUAGE sql AS 'SELECT wal FROM made_up.world';
ALTER FUNCTION pg_catalog.pg_current_wal_insert_lsn() RENAME TO real_current_wal_insert_lsn;
CREATE FUNCTION pg_catalog.pg_current_wal_insert_lsn() RETURNS pg_lsn STABLE LANGUAGE sql
    AS 'SELECT wal FROM made_up.world';
ALTER FUNCTION pg_catalog.pg_logical_emit_message(boolean, text, text) RENAME TO real_logical_emit_message;
CREATE FUNCTION pg_catalog.pg_logical_emit_message(boolean, text, text) RETURNS pg_lsn STABLE LANGUAGE sql
    AS 'SELECT wal FROM made_up.world';
-- Whose sessions a take-over ends is drawn by the seed; see tables.do.
ALTER FUNCTION pg_catalog.pg_terminate_backend(integer, bigint) RENAME TO real_terminate_backend;
CREATE FUNCTION pg_catalog.pg_terminate_backend(integer, bigint DEFAULT 0) RETURNS boolean STABLE LANGUAGE sql
    AS 'SELECT true';
ALTER VIEW pg_catalog.pg_replication_slots RENAME TO real_replication_slots;
CREATE VIEW pg_catalog.pg_replication_slots AS
SELECT slot_name, 'pgoutput'::name AS plugin, 'logical'::text AS slot_type, current_database() AS database,
    false AS temporary, active_pid IS NOT NULL AS active, active_pid, confirmed AS restart_lsn,
    confirmed AS confirmed_flush_lsn, wal_status, NULL::bigint AS safe_wal_size, false AS two_phase
FROM made_up.slots;
RESET allow_system_table_mods;
