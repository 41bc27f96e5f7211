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
    UNIQUE (slot, table_oid)
);

-- The fence. Only a takeover updates a row; park, dead-letter and state writes lock it FOR SHARE.
CREATE TABLE {{.Schema}}.cdc_relay_epoch (
    slot     text PRIMARY KEY,
    epoch    bigint NOT NULL,
    taken_at timestamptz
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
    updated_at     timestamptz NOT NULL DEFAULT now()
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
    PRIMARY KEY (source, batch)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE {{.Schema}}.cdc_relay_journal_batch ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX cdc_relay_journal_batch_unmirrored ON {{.Schema}}.cdc_relay_journal_batch (source, batch) INCLUDE (size) WHERE NOT mirrored;

-- Events stored aside for a later retry. (epoch, from_stream, position_order, position_index) is the queue order of a lane.
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
    PRIMARY KEY (source, event_id)
);

-- A lane in queue order. The key itself may be longer than an index entry can be.
CREATE INDEX cdc_relay_parked_lane ON {{.Schema}}.cdc_relay_parked (source, topic, md5(key), epoch, from_stream, position_order, position_index);
CREATE INDEX cdc_relay_parked_due ON {{.Schema}}.cdc_relay_parked (source, next_retry_at) WHERE next_retry_at IS NOT NULL;

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
    next_offset bigint NOT NULL,
    since       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (slot, topic, partition)
) WITH (fillfactor = 50);
