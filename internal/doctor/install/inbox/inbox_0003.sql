-- What is parked, tried again by programs in other languages.
CREATE TYPE {{.Schema}}.inbox_due AS (
    id text, source_name text, topic text, partition integer, "offset" bigint, key bytea, value bytea, headers jsonb,
    type text, attempts integer);

-- Takes a parked event whose time has come into the caller's transaction: no row, or one. It is the first of its key that
-- is parked. Have its effect here and call inbox_done, or roll back and call inbox_failed.
CREATE FUNCTION {{.Schema}}.inbox_take(consumer_name text) RETURNS SETOF {{.Schema}}.inbox_due LANGUAGE sql AS $$
    SELECT p.event_id, coalesce(s.name, ''), p.topic, p.partition, p."offset", p.key, p.value,
        (SELECT coalesce(jsonb_object_agg(h.name, convert_from(h.value, 'UTF8')), '{}')
         FROM unnest(p.header_names, p.header_values) AS h (name, value)),
        p.type, p.attempts
    FROM {{.Schema}}.inbox_parked p
    JOIN {{.Schema}}.inbox_consumer c ON c.consumer = p.consumer AND c.name = consumer_name
    LEFT JOIN {{.Schema}}.inbox_source s ON s.source = p.source
    WHERE p.next_at <= now() AND NOT EXISTS (
        SELECT FROM {{.Schema}}.inbox_parked b WHERE b.consumer = p.consumer AND b.topic = p.topic
          AND b.partition = p.partition AND b.lane = p.lane AND b.seq < p.seq)
    ORDER BY p.next_at LIMIT 1 FOR UPDATE OF p SKIP LOCKED
$$;

-- Takes a parked event out, and lets the next one of its key have its turn.
CREATE FUNCTION {{.Schema}}.inbox_leaves(consumer_name text, parked {{.Schema}}.inbox_parked, becomes smallint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF parked.key IS NOT NULL THEN -- as inbox_claim does: what is parked behind it meanwhile is seen below
        PERFORM pg_advisory_xact_lock(
            hashtextextended(consumer_name || ' ' || parked.topic || ' ' || encode(parked.key, 'hex'), 19));
    END IF;
    DELETE FROM {{.Schema}}.inbox_parked p WHERE p.seq = parked.seq;
    UPDATE {{.Schema}}.inbox_parked SET next_at = now() WHERE next_at IS NULL AND seq = (
        SELECT min(p.seq) FROM {{.Schema}}.inbox_parked p WHERE p.consumer = parked.consumer AND p.topic = parked.topic
          AND p.partition = parked.partition AND p.lane = parked.lane);
    UPDATE {{.Schema}}.inbox_event e SET state = becomes
    WHERE e.consumer = parked.consumer AND e.source = parked.source AND e.event_id = parked.event_id AND e.state = 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % is parked, and its row does not say so', quote_literal(parked.event_id);
    END IF;
END $$;

-- Says, in the transaction that has its effect, that a parked event is done. False: it is not parked any more, so roll back.
CREATE FUNCTION {{.Schema}}.inbox_done(consumer_name text, id text, source_name text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    p {{.Schema}}.inbox_parked;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    SELECT * INTO p FROM {{.Schema}}.inbox_parked q
    WHERE q.consumer = c AND q.source = i.source AND q.event_id = i.event_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {{.Schema}}.inbox_leaves(consumer_name, p, 0::smallint);
    RETURN true;
END $$;

-- Counts a failed attempt of a parked event: the next one is at next_at, and NULL makes it a dead letter, behind which its
-- key goes on. False: it is not parked any more.
CREATE FUNCTION {{.Schema}}.inbox_failed(
    consumer_name text, id text, error text, next_at timestamptz DEFAULT NULL, source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    p {{.Schema}}.inbox_parked;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    UPDATE {{.Schema}}.inbox_parked q SET attempts = q.attempts + 1, error = inbox_failed.error,
        next_at = inbox_failed.next_at, class = 'transient'
    WHERE q.consumer = c AND q.source = i.source AND q.event_id = i.event_id RETURNING q.* INTO p;
    IF NOT FOUND THEN
        RETURN false;
    ELSIF next_at IS NOT NULL THEN
        RETURN true;
    END IF;
    PERFORM {{.Schema}}.inbox_leaves(consumer_name, p, 2::smallint);
    INSERT INTO {{.Schema}}.inbox_dead AS d (consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, attempts, class, error)
    VALUES (p.consumer, p.source, p.event_id, p.topic, p.partition, p."offset", p.lane, p.key, p.type, p.value,
        p.header_names, p.header_values, p.sent_at, p.attempts, 'exhausted', inbox_failed.error)
    ON CONFLICT ON CONSTRAINT inbox_dead_consumer_source_event_id_key DO UPDATE SET attempts = excluded.attempts,
        class = excluded.class, error = excluded.error, dead_at = now(), replayed_at = NULL, discarded_at = NULL;
    RETURN true;
END $$;
