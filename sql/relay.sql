-- The relay's own tables, shared by every outbox that is relayed through this schema.

-- What each slot and table is called in the keys below. A table that was dropped and made anew has a new oid and so a
-- new number: ids that it uses again do not count as published. Numbers are drawn by lot, because records carry them: two
-- outboxes of one server that share a topic must not take each other's records for their own.
CREATE TABLE {{.Schema}}.cdc_relay_source (
    source     integer PRIMARY KEY DEFAULT (floor(random() * 2147483646) + 1)::integer,
    slot       text NOT NULL,
    table_oid  oid NOT NULL,
    table_name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- Systems that the source lived on before this one adopted it (pg_upgrade, dump and restore). Records in the topics
    -- carry the system that they were sent from.
    former_systems text[] NOT NULL DEFAULT '{}',
    UNIQUE (slot, table_oid)
);

-- The fence. Only a takeover updates a row; park, dead-letter and state writes lock it FOR SHARE.
CREATE TABLE {{.Schema}}.cdc_relay_epoch (
    slot     text PRIMARY KEY,
    epoch    bigint NOT NULL,
    taken_at timestamptz,
    taken_lsn pg_lsn -- the end of WAL at the last takeover: it was of a slot that is older than that
) WITH (fillfactor = 50);

-- Progress, one row per slot, updated in place at most once per second.
CREATE TABLE {{.Schema}}.cdc_relay_state (
    slot           text PRIMARY KEY,
    source         integer NOT NULL REFERENCES {{.Schema}}.cdc_relay_source,
    phase          text NOT NULL CHECK (phase IN ('catch_up', 'stream')),
    dirty          boolean NOT NULL DEFAULT true,
    confirmed      pg_lsn NOT NULL DEFAULT '0/0',
    system_id      text NOT NULL,
    timeline       integer NOT NULL,
    catch_up_ready boolean NOT NULL DEFAULT false,
    era            bigint NOT NULL DEFAULT 0, -- the epoch of the last catch-up's snapshot: positions are comparable within it
    baseline_at    timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    -- dlq.breaker across restarts: since when it is open and why, and which deaths a person has let pass
    breaker_at     timestamptz,
    breaker_said   text,
    resumed_at     timestamptz,
    -- the reconciler across restarts: rows of transactions that began before the horizon were seen by a clean round;
    -- when the whole table was last read; whether the rows of the present catch-up are marked as late
    horizon        timestamptz NOT NULL DEFAULT now(),
    swept_at       timestamptz,
    catch_up_late  boolean NOT NULL DEFAULT false,
    paused_at      timestamptz, -- NULL: it is not paused
    paused_by      text,
    paused_note    text
) WITH (fillfactor = 50);

-- The truth about "published". Columns stand widest first, so that no row is padded. Topic '' with offset -1 marks a row
-- that was there before the first start with outbox.catch_up: false.
CREATE TABLE {{.Schema}}.cdc_relay_journal (
    published_at timestamptz NOT NULL DEFAULT now(),
    "offset"     bigint NOT NULL,
    source       integer NOT NULL,
    partition    integer NOT NULL,
    event_id     {{.IDType}}{{.CollateC}} NOT NULL,
    topic        text NOT NULL,
    -- Tells an event that the stream sends again from another one with its id, say after TRUNCATE with RESTART IDENTITY:
    -- the position in the stream, folded (outbox.Position.Mark). Negative or NULL: the event was read from the table
    -- (Position.RowMark), or journaled by an older version; then the times tell.
    stream_mark  integer,
    PRIMARY KEY (source, event_id)
);

-- One row per batch of journal rows, with their ids: the order in which the mirror and the pruner walk the journal.
-- xid is the writing transaction, wal_lsn a position that no event of the batch reaches past.
CREATE TABLE {{.Schema}}.cdc_relay_journal_batch (
    batch        bigint GENERATED ALWAYS AS IDENTITY,
    xid          xid8 NOT NULL DEFAULT pg_current_xact_id(),
    wal_lsn      pg_lsn NOT NULL DEFAULT pg_current_wal_insert_lsn(),
    published_at timestamptz NOT NULL DEFAULT now(),
    source       integer NOT NULL,
    size         integer NOT NULL,
    mirrored     boolean NOT NULL DEFAULT false,
    ids          {{.IDType}}[] NOT NULL,
    -- Whether the outbox rows were deleted, by outbox.retention or after_publish: delete. A row can be marked at once and
    -- deleted a month later. What was there before the first start is never deleted.
    deleted      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (source, batch)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE {{.Schema}}.cdc_relay_journal_batch ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX cdc_relay_journal_batch_unmirrored ON {{.Schema}}.cdc_relay_journal_batch (source, batch) INCLUDE (size) WHERE NOT mirrored;
CREATE INDEX cdc_relay_journal_batch_undeleted ON {{.Schema}}.cdc_relay_journal_batch (source, batch) INCLUDE (size) WHERE NOT deleted;

-- Events stored aside for a later retry. (epoch, from_stream, position_order, position_index) is the queue order of a lane.
-- An id can be too long for a btree's entry, so nothing here limits the length of a text id: a hash index does not.
CREATE TABLE {{.Schema}}.cdc_relay_parked (
    source         integer NOT NULL,
    event_id       {{.IDType}}{{.CollateC}} NOT NULL,
    topic          text NOT NULL,
    key            bytea,
    epoch          bigint NOT NULL,
    from_stream    boolean NOT NULL,
    position_order bigint NOT NULL,
    position_index bigint NOT NULL,
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        bytea,
    headers        text,
    created_at     text,
    extra          jsonb,
    retry_count    integer NOT NULL DEFAULT 0,
    next_retry_at  timestamptz,
    last_error     text,
    error_class    text NOT NULL CHECK (error_class IN ('transient', 'permanent', 'blocked')),
    last_error_at  timestamptz,
    parked_at      timestamptz NOT NULL DEFAULT now(),
    late           boolean NOT NULL DEFAULT false, -- the stream had not delivered it in its place
    replay         bigint, -- the request of a replayed dead letter, which is open until the event is journaled{{.ParkedNumber}}
    shown_at       timestamptz, -- the failure that the outbox row shows, by outbox.retry_set: last_error_at as it was then
    {{.ParkedUnique}}
);

-- A lane in queue order. The key itself may be longer than an index entry can be.
CREATE INDEX cdc_relay_parked_lane ON {{.Schema}}.cdc_relay_parked (source, topic, md5(key), epoch, from_stream, position_order, position_index);
CREATE INDEX cdc_relay_parked_due ON {{.Schema}}.cdc_relay_parked (source, next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX cdc_relay_parked_replay ON {{.Schema}}.cdc_relay_parked (replay) WHERE replay IS NOT NULL;{{.ParkedIndex}}

-- Ids of a catch-up in the order in which they are published; emptied when the catch-up is finished.
CREATE TABLE {{.Schema}}.cdc_relay_catch_up (
    source     integer NOT NULL,
    row_number bigint NOT NULL,
    event_id   {{.IDType}}{{.CollateC}} NOT NULL,
    PRIMARY KEY (source, row_number)
);

-- How far each partition's records of ours are known to be journaled, for a start after a crash: what lies behind that
-- in the topic is read back. A topic's row with partition -1 is committed before the first record goes there; it says
-- since when records of ours can be in partitions that have no row yet.
CREATE TABLE {{.Schema}}.cdc_relay_offset (
    slot        text NOT NULL,
    topic       text NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint NOT NULL, -- of partition -1, the topic itself: a digest of its cluster's id, 0 if not known
    since       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (slot, topic, partition)
) WITH (fillfactor = 50);

-- What people ask of the relay that holds the slot. Commands and the API only write here; the relay executes, at once
-- when it runs and later when it does not, and notes how far it is in the transactions that do the work. Rows stay: they
-- say who did what. A kind that a relay does not know is finished with an error, so a newer command may write one.
CREATE TABLE {{.Schema}}.cdc_relay_request (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot         text NOT NULL,
    kind         text NOT NULL, -- replay, discard, retry, pause, resume
    filter       jsonb NOT NULL,
    who          text NOT NULL,
    note         text,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    total        bigint, -- what it concerned when it was started
    done         bigint NOT NULL DEFAULT 0,
    error        text
);
CREATE INDEX cdc_relay_request_open ON {{.Schema}}.cdc_relay_request (slot, id) WHERE finished_at IS NULL;

-- What a topic lost or moved, until a person acknowledges it. One row per kind and topic is open; acknowledged rows stay,
-- they say who looked at what.
CREATE TABLE {{.Schema}}.cdc_relay_alarms (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source          integer NOT NULL,
    kind            text NOT NULL, -- see sink.Alarms
    topic           text NOT NULL,
    partition       integer NOT NULL, -- that it was seen at last; -1: the topic as a whole
    detail          text NOT NULL,
    repair          text NOT NULL, -- the command that brings back what was lost; empty where nothing was
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    count           bigint NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text,
    acknowledged_note text
);
CREATE UNIQUE INDEX cdc_relay_alarms_open ON {{.Schema}}.cdc_relay_alarms (source, kind, topic) WHERE acknowledged_at IS NULL;

-- What people changed of dead letters: one row per edit, with what was there before it. They go with their dead letter.
CREATE TABLE {{.Schema}}.cdc_relay_edit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source    integer NOT NULL,
    event_id  {{.IDType}}{{.CollateC}} NOT NULL,
    edited_at timestamptz NOT NULL DEFAULT now(),
    who       text NOT NULL,
    note      text,
    payload   bytea, -- before
    headers   text   -- before
);
CREATE INDEX cdc_relay_edit_event ON {{.Schema}}.cdc_relay_edit USING hash (event_id);
