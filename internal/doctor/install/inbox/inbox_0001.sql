-- What consumers share: which events had their effect, which wait, which were given up, and how far each partition is.
CREATE TABLE {{.Schema}}.inbox_consumer (
    consumer smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text NOT NULL UNIQUE
);

-- Ids that are no uuids are unique in one outbox only. Source 0 is that of uuids.
CREATE TABLE {{.Schema}}.inbox_source (
    source smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text NOT NULL UNIQUE
);

-- The row is the fence: whoever inserts it decides the event, and its transaction has the effect.
CREATE TABLE {{.Schema}}.inbox_event (
    consumer smallint NOT NULL,
    source   smallint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    state    smallint NOT NULL, -- 0 done, 1 parked, 2 dead, 3 discarded
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, source, event_id)
);
CREATE INDEX inbox_event_at ON {{.Schema}}.inbox_event USING brin (at) WITH (pages_per_range = 32, autosummarize = on);

-- Events that wait, and behind them all that follows of their keys. Within a lane seq is their order: a row is written
-- when the one before it is committed.
CREATE TABLE {{.Schema}}.inbox_parked (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      smallint NOT NULL,
    source        smallint NOT NULL,
    event_id      text COLLATE "C" NOT NULL,
    topic         text NOT NULL,
    partition     integer NOT NULL,
    "offset"      bigint NOT NULL,
    lane          bytea NOT NULL,
    key           bytea,
    type          text NOT NULL DEFAULT '',
    value         bytea,
    header_names  text[] NOT NULL,
    header_values bytea[] NOT NULL,
    sent_at       timestamptz NOT NULL,
    attempts      integer NOT NULL DEFAULT 0,
    next_at       timestamptz, -- NULL: it waits for those before it; infinity: for a person
    class         text NOT NULL DEFAULT '',
    error         text NOT NULL DEFAULT '',
    parked_at     timestamptz NOT NULL DEFAULT now(),
    UNIQUE (consumer, source, event_id)
);
CREATE INDEX inbox_parked_lane ON {{.Schema}}.inbox_parked (consumer, topic, partition, lane, seq);
CREATE INDEX inbox_parked_due ON {{.Schema}}.inbox_parked (consumer, next_at) WHERE next_at IS NOT NULL;

CREATE TABLE {{.Schema}}.inbox_dead (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      smallint NOT NULL,
    source        smallint NOT NULL,
    event_id      text COLLATE "C" NOT NULL,
    topic         text NOT NULL,
    partition     integer NOT NULL,
    "offset"      bigint NOT NULL,
    lane          bytea NOT NULL,
    key           bytea,
    type          text NOT NULL DEFAULT '',
    value         bytea,
    header_names  text[] NOT NULL,
    header_values bytea[] NOT NULL,
    sent_at       timestamptz NOT NULL,
    attempts      integer NOT NULL,
    class         text NOT NULL, -- permanent, exhausted, process
    error         text NOT NULL,
    dead_at       timestamptz NOT NULL DEFAULT now(),
    replayed_at   timestamptz,
    discarded_at  timestamptz,
    resolved_by   text,
    note          text,
    UNIQUE (consumer, source, event_id)
);
CREATE INDEX inbox_dead_open ON {{.Schema}}.inbox_dead (consumer, id) WHERE replayed_at IS NULL AND discarded_at IS NULL;

-- Kafka has these offsets, too. A start takes the lower: a database that was set back is filled up again.
CREATE TABLE {{.Schema}}.inbox_offset (
    consumer    smallint NOT NULL,
    topic       text NOT NULL,
    partition   integer NOT NULL,
    topic_id    text NOT NULL,
    next_offset bigint NOT NULL,
    holder      text, -- NULL: released in good order
    at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition)
);

-- Events that were begun by a process that started after one that died.
CREATE TABLE {{.Schema}}.inbox_suspect (
    consumer smallint NOT NULL,
    source   smallint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    seen     smallint NOT NULL DEFAULT 0, -- begun among others
    alone    smallint NOT NULL DEFAULT 0, -- begun with nothing beside it
    PRIMARY KEY (consumer, source, event_id)
);

-- A process knows its server by when it started: what it has decided on another one, or before a restart, may be gone.
CREATE FUNCTION {{.Schema}}.inbox_same_server(known timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF pg_postmaster_start_time() <> known THEN
        RAISE EXCEPTION 'the server is not the one that this process has read its offsets from'
            USING ERRCODE = 'IB001';
    END IF;
END $$;

-- Claims events for the caller's transaction, and returns those that somebody has decided, by their place in the list.
CREATE FUNCTION {{.Schema}}.inbox_claim_all(c smallint, known timestamptz, sources smallint[], ids text[])
RETURNS TABLE (place integer, state smallint) LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    won_sources smallint[];
    won_ids     text[];
BEGIN
    PERFORM {{.Schema}}.inbox_same_server(known);
    WITH won AS (
        INSERT INTO {{.Schema}}.inbox_event AS e (consumer, source, event_id, state)
        SELECT c, u.source, u.id, 0 FROM unnest(sources, ids) AS u (source, id) ORDER BY u.source, u.id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING e.source, e.event_id)
    SELECT array_agg(w.source), array_agg(w.event_id) INTO won_sources, won_ids FROM won w;
    IF coalesce(cardinality(won_ids), 0) < cardinality(ids) THEN
        RETURN QUERY
        SELECT u.place::integer, e.state
        FROM unnest(sources, ids) WITH ORDINALITY AS u (source, id, place)
        JOIN {{.Schema}}.inbox_event e ON e.consumer = c AND e.source = u.source AND e.event_id = u.id
        WHERE NOT EXISTS (
            SELECT FROM unnest(won_sources, won_ids) AS w (source, id) WHERE w.source = u.source AND w.id = u.id);
    END IF;
END $$;
