-- What people and programs in other languages call.
CREATE FUNCTION {{.Schema}}.inbox_register(consumer_name text) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    found smallint;
BEGIN
    SELECT c.consumer INTO found FROM {{.Schema}}.inbox_consumer c WHERE c.name = consumer_name;
    IF found IS NULL THEN
        INSERT INTO {{.Schema}}.inbox_consumer (name) VALUES (consumer_name) ON CONFLICT DO NOTHING;
        SELECT c.consumer INTO STRICT found FROM {{.Schema}}.inbox_consumer c WHERE c.name = consumer_name;
    END IF;
    RETURN found;
END $$;

CREATE FUNCTION {{.Schema}}.inbox_known(consumer_name text) RETURNS smallint LANGUAGE plpgsql STABLE AS $$
DECLARE
    found smallint;
BEGIN
    SELECT c.consumer INTO found FROM {{.Schema}}.inbox_consumer c WHERE c.name = consumer_name;
    IF found IS NULL THEN
        RAISE EXCEPTION 'no consumer is named %', quote_literal(consumer_name) USING ERRCODE = 'undefined_object';
    END IF;
    RETURN found;
END $$;

-- An id as it is stored: uuids in small letters, with source 0; other ids with the source that was named.
CREATE FUNCTION {{.Schema}}.inbox_identity(id text, source_name text, OUT source smallint, OUT event_id text)
LANGUAGE plpgsql AS $$
BEGIN
    IF id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        source := 0;
        event_id := lower(id);
        RETURN;
    END IF;
    event_id := id;
    SELECT s.source INTO source FROM {{.Schema}}.inbox_source s WHERE s.name = source_name;
    IF source IS NULL THEN
        INSERT INTO {{.Schema}}.inbox_source (name) VALUES (source_name) ON CONFLICT DO NOTHING;
        SELECT s.source INTO STRICT source FROM {{.Schema}}.inbox_source s WHERE s.name = source_name;
    END IF;
END $$;

CREATE FUNCTION {{.Schema}}.inbox_word(state smallint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE state WHEN 0 THEN 'done' WHEN 1 THEN 'parked' WHEN 2 THEN 'dead' WHEN 3 THEN 'discarded' END
$$;

-- Claims an event for the caller's transaction. new: have the effect, here; anything else: somebody has decided it, go on.
-- behind: its key has a parked event before it; nothing was claimed, so park this one, too.
CREATE FUNCTION {{.Schema}}.inbox_claim(
    consumer_name text, id text, topic text DEFAULT NULL, partition integer DEFAULT NULL, key bytea DEFAULT NULL,
    source_name text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_register(consumer_name);
    i record;
    s smallint;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    IF key IS NOT NULL THEN
        -- One key at a time, or its lane could be parked between this look and the claim.
        PERFORM pg_advisory_xact_lock(hashtextextended(consumer_name || ' ' || topic || ' ' || encode(key, 'hex'), 19));
        IF EXISTS (SELECT FROM {{.Schema}}.inbox_parked p WHERE p.consumer = c AND p.topic = inbox_claim.topic
                   AND p.partition = inbox_claim.partition AND p.lane = 'k'::bytea || inbox_claim.key)
           AND NOT EXISTS (SELECT FROM {{.Schema}}.inbox_event e
                           WHERE e.consumer = c AND e.source = i.source AND e.event_id = i.event_id) THEN
            RETURN 'behind';
        END IF;
    END IF;
    INSERT INTO {{.Schema}}.inbox_event (consumer, source, event_id, state) VALUES (c, i.source, i.event_id, 0)
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
        RETURN 'new';
    END IF;
    SELECT e.state INTO STRICT s FROM {{.Schema}}.inbox_event e
    WHERE e.consumer = c AND e.source = i.source AND e.event_id = i.event_id;
    RETURN {{.Schema}}.inbox_word(s);
END $$;

-- Parks an event: it is tried again at next_at, and what follows of its key waits behind it. False: it was decided before.
CREATE FUNCTION {{.Schema}}.inbox_park(
    consumer_name text, id text, topic text, partition integer, "offset" bigint, key bytea, value bytea,
    headers jsonb DEFAULT '{}', type text DEFAULT '', error text DEFAULT '', attempts integer DEFAULT 1,
    next_at timestamptz DEFAULT now() + interval '1 minute', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_register(consumer_name);
    i record;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    INSERT INTO {{.Schema}}.inbox_event (consumer, source, event_id, state) VALUES (c, i.source, i.event_id, 1)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {{.Schema}}.inbox_parked AS p (consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, attempts, next_at, class, error)
    SELECT c, i.source, i.event_id, inbox_park.topic, inbox_park.partition, inbox_park."offset",
        CASE WHEN inbox_park.key IS NULL THEN 'o'::bytea || int8send(inbox_park."offset") ELSE 'k'::bytea || inbox_park.key END,
        inbox_park.key, inbox_park.type, inbox_park.value,
        coalesce(array_agg(h.key ORDER BY h.key) FILTER (WHERE h.key IS NOT NULL), '{}'),
        coalesce(array_agg(convert_to(h.value, 'UTF8') ORDER BY h.key) FILTER (WHERE h.key IS NOT NULL), '{}'),
        now(), inbox_park.attempts, inbox_park.next_at, 'transient', inbox_park.error
    FROM (SELECT) one LEFT JOIN jsonb_each_text(inbox_park.headers) h ON true;
    RETURN true;
END $$;

CREATE FUNCTION {{.Schema}}.inbox_state(consumer_name text, id text, source_name text DEFAULT '') RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT {{.Schema}}.inbox_word(e.state) FROM {{.Schema}}.inbox_event e
    JOIN {{.Schema}}.inbox_consumer c ON c.consumer = e.consumer AND c.name = consumer_name
    LEFT JOIN {{.Schema}}.inbox_source s ON s.name = source_name
    WHERE e.event_id IN (id, lower(id)) AND (e.source = 0 AND e.event_id = lower(id) OR e.source = s.source)
$$;

-- Waits until an event is decided, at most for so long (and never for more than 30 s), and returns inbox_state. It holds
-- its session: a program polls inbox_state instead.
CREATE FUNCTION {{.Schema}}.inbox_wait(
    consumer_name text, id text, patience interval DEFAULT '5 s', source_name text DEFAULT '') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := clock_timestamp() + least(patience, interval '30 s');
    pause double precision := 0.001;
    s text;
BEGIN
    LOOP
        s := {{.Schema}}.inbox_state(consumer_name, id, source_name);
        IF s IS NOT NULL AND s <> 'parked' OR clock_timestamp() >= until THEN
            RETURN s;
        END IF;
        PERFORM pg_sleep(pause);
        pause := least(pause * 1.5, 0.05);
    END LOOP;
END $$;

-- Tries a dead letter again, or a parked event at once. False: there is nothing of that id to try.
CREATE FUNCTION {{.Schema}}.inbox_replay(
    consumer_name text, id text, by text DEFAULT current_user, note text DEFAULT '', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    d {{.Schema}}.inbox_dead;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    -- Those of its lane that it waits for are tried, too, before it.
    UPDATE {{.Schema}}.inbox_parked p SET next_at = now(), attempts = 0 FROM {{.Schema}}.inbox_parked asked
    WHERE asked.consumer = c AND asked.source = i.source AND asked.event_id = i.event_id AND p.consumer = c
      AND p.topic = asked.topic AND p.partition = asked.partition AND p.lane = asked.lane AND p.seq <= asked.seq;
    IF FOUND THEN
        RETURN true;
    END IF;
    UPDATE {{.Schema}}.inbox_dead l SET replayed_at = now(), resolved_by = by, note = inbox_replay.note
    WHERE l.consumer = c AND l.source = i.source AND l.event_id = i.event_id
      AND l.replayed_at IS NULL AND l.discarded_at IS NULL
    RETURNING l.* INTO d;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {{.Schema}}.inbox_event e SET state = 1
    WHERE e.consumer = c AND e.source = i.source AND e.event_id = i.event_id AND e.state = 2;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % is a dead letter, and its row does not say so', quote_literal(id);
    END IF;
    INSERT INTO {{.Schema}}.inbox_parked (consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, next_at, class, error)
    VALUES (d.consumer, d.source, d.event_id, d.topic, d.partition, d."offset", d.lane, d.key, d.type, d.value,
        d.header_names, d.header_values, d.sent_at, now(), 'replay', d.error);
    RETURN true;
END $$;

-- Gives up a dead letter or a parked event for good. False: there is nothing of that id to give up.
CREATE FUNCTION {{.Schema}}.inbox_discard(
    consumer_name text, id text, by text DEFAULT current_user, note text DEFAULT '', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    d {{.Schema}}.inbox_dead;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    WITH p AS (
        DELETE FROM {{.Schema}}.inbox_parked p
        WHERE p.consumer = c AND p.source = i.source AND p.event_id = i.event_id RETURNING p.*)
    INSERT INTO {{.Schema}}.inbox_dead AS l (consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, attempts, class, error)
    SELECT consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, attempts, 'discarded', error FROM p
    ON CONFLICT (consumer, source, event_id) DO UPDATE SET replayed_at = NULL, discarded_at = NULL;
    UPDATE {{.Schema}}.inbox_dead l SET discarded_at = now(), resolved_by = by, note = inbox_discard.note
    WHERE l.consumer = c AND l.source = i.source AND l.event_id = i.event_id
      AND l.replayed_at IS NULL AND l.discarded_at IS NULL
    RETURNING l.* INTO d;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- What waited for it waits no more.
    UPDATE {{.Schema}}.inbox_parked SET next_at = now() WHERE next_at IS NULL AND seq = (
        SELECT min(p.seq) FROM {{.Schema}}.inbox_parked p
        WHERE p.consumer = c AND p.topic = d.topic AND p.partition = d.partition AND p.lane = d.lane);
    UPDATE {{.Schema}}.inbox_event e SET state = 3
    WHERE e.consumer = c AND e.source = i.source AND e.event_id = i.event_id AND e.state IN (1, 2);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % waits or is dead, and its row does not say so', quote_literal(id);
    END IF;
    RETURN true;
END $$;
