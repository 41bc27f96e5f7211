-- Numbers of consumers and sources come from the tables rather than from sequences, which count rolled back claims, too, and
-- end at 32,767. One session at a time gives a new number.
CREATE FUNCTION {{.Schema}}.inbox_number_lock() RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended($name${{.Schema}}.inbox_source$name$, 20))
$$;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_register(consumer_name text) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
    found smallint;
BEGIN
    IF coalesce(consumer_name, '') = '' THEN
        RAISE EXCEPTION 'the name of the consumer is empty' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT c.consumer INTO found FROM {{.Schema}}.inbox_consumer c WHERE c.name = consumer_name;
    IF found IS NULL THEN
        PERFORM {{.Schema}}.inbox_number_lock();
        INSERT INTO {{.Schema}}.inbox_consumer (consumer, name) OVERRIDING SYSTEM VALUE
        SELECT coalesce(max(c.consumer), 0) + 1, consumer_name FROM {{.Schema}}.inbox_consumer c ON CONFLICT (name) DO NOTHING;
        SELECT c.consumer INTO STRICT found FROM {{.Schema}}.inbox_consumer c WHERE c.name = consumer_name;
    END IF;
    RETURN found;
END $$;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_identity(id text, source_name text, OUT source smallint, OUT event_id text)
LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(id, '') = '' THEN
        RAISE EXCEPTION 'the id of the event is empty: it is what tells an event from others'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF source_name IS NULL THEN
        RAISE EXCEPTION 'source_name is NULL: name the outbox in which the id is unique, or leave it out'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF {{.Schema}}.inbox_is_uuid(id) THEN
        source := 0;
        event_id := lower(id);
        RETURN;
    END IF;
    event_id := id;
    SELECT s.source INTO source FROM {{.Schema}}.inbox_source s WHERE s.name = source_name;
    IF source IS NULL THEN
        PERFORM {{.Schema}}.inbox_number_lock();
        INSERT INTO {{.Schema}}.inbox_source (source, name) OVERRIDING SYSTEM VALUE
        SELECT coalesce(max(s.source), 0) + 1, source_name FROM {{.Schema}}.inbox_source s ON CONFLICT (name) DO NOTHING;
        SELECT s.source INTO STRICT source FROM {{.Schema}}.inbox_source s WHERE s.name = source_name;
    END IF;
END $$;

CREATE FUNCTION {{.Schema}}.inbox_is_uuid(id text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
$$;

-- Finds an event that the consumer has decided, by the primary key. Without the name of its source an id that is not a uuid
-- is looked for in each. known: false if there is none.
CREATE FUNCTION {{.Schema}}.inbox_find(
    c smallint, id text, source_name text, OUT known boolean, OUT source smallint, OUT event_id text, OUT state smallint)
LANGUAGE plpgsql STABLE SET enable_seqscan = off AS $$
DECLARE
    several boolean;
BEGIN
    event_id := id;
    IF {{.Schema}}.inbox_is_uuid(id) THEN
        event_id := lower(id);
        SELECT e.source, e.state INTO source, state FROM {{.Schema}}.inbox_event e
        WHERE e.consumer = c AND e.source = 0 AND e.event_id = inbox_find.event_id;
        known := FOUND;
        RETURN;
    ELSIF coalesce(source_name, '') <> '' THEN
        SELECT e.source, e.state INTO source, state FROM {{.Schema}}.inbox_source s
        JOIN {{.Schema}}.inbox_event e ON e.consumer = c AND e.source = s.source AND e.event_id = id
        WHERE s.name = source_name;
        known := FOUND;
        RETURN;
    END IF;
    SELECT min(e.source), min(e.state), count(*) > 1, count(*) > 0 INTO source, state, several, known
    FROM {{.Schema}}.inbox_source s, LATERAL (SELECT n.source, n.state FROM {{.Schema}}.inbox_event n
        WHERE n.consumer = c AND n.source = s.source AND n.event_id = id) e;
    IF several THEN
        RAISE EXCEPTION 'several sources have an event %: name one, as source_name', quote_literal(id)
            USING ERRCODE = 'ambiguous_parameter';
    END IF;
END $$;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_state(consumer_name text, id text, source_name text DEFAULT '') RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c smallint;
    i record;
BEGIN
    SELECT n.consumer INTO c FROM {{.Schema}}.inbox_consumer n WHERE n.name = consumer_name;
    SELECT * INTO i FROM {{.Schema}}.inbox_find(c, id, source_name);
    RETURN {{.Schema}}.inbox_word(i.state);
END $$;

-- The same as before, except that they find an id that is not a uuid without the name of its source, and that a replayed
-- event stays one when it fails.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_replay(
    consumer_name text, id text, by text DEFAULT current_user, note text DEFAULT '', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    d {{.Schema}}.inbox_dead;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_find(c, id, source_name);
    IF NOT i.known THEN
        RETURN false;
    END IF;
    PERFORM {{.Schema}}.inbox_lock(consumer_name, p.topic, p.key) FROM {{.Schema}}.inbox_parked p
    WHERE p.consumer = c AND p.source = i.source AND p.event_id = i.event_id;
    -- Those of its lane that it waits for are tried, too, before it: the first now, and each when the one before it has
    -- left. Else all of them would be looked at again and again as long as the first one fails.
    UPDATE {{.Schema}}.inbox_parked p SET attempts = 0, next_at = CASE WHEN NOT EXISTS (
        SELECT FROM {{.Schema}}.inbox_parked b WHERE b.consumer = p.consumer AND b.topic = p.topic
          AND b.partition = p.partition AND b.lane = p.lane AND b.seq < p.seq) THEN now() END
    FROM {{.Schema}}.inbox_parked asked
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

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_discard(
    consumer_name text, id text, by text DEFAULT current_user, note text DEFAULT '', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    d {{.Schema}}.inbox_dead;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_find(c, id, source_name);
    IF NOT i.known THEN
        RETURN false;
    END IF;
    PERFORM {{.Schema}}.inbox_lock(consumer_name, p.topic, p.key) FROM {{.Schema}}.inbox_parked p
    WHERE p.consumer = c AND p.source = i.source AND p.event_id = i.event_id;
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

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_done(consumer_name text, id text, source_name text DEFAULT '') RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    p {{.Schema}}.inbox_parked;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_find(c, id, source_name);
    IF NOT i.known THEN
        RETURN false;
    END IF;
    SELECT * INTO p FROM {{.Schema}}.inbox_parked q
    WHERE q.consumer = c AND q.source = i.source AND q.event_id = i.event_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {{.Schema}}.inbox_leaves(consumer_name, p, 0::smallint);
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_failed(
    consumer_name text, id text, error text, next_at timestamptz DEFAULT NULL, source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    p {{.Schema}}.inbox_parked;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_find(c, id, source_name);
    IF NOT i.known THEN
        RETURN false;
    END IF;
    UPDATE {{.Schema}}.inbox_parked q SET attempts = q.attempts + 1, error = inbox_failed.error,
        next_at = inbox_failed.next_at,
        class = CASE WHEN q.class = 'replay' THEN 'replay' ELSE 'transient' END
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

-- A header's value as text: with escapes where the database cannot hold it, or where it is not text. An event with such a
-- header would stop everything that is parked.
CREATE FUNCTION {{.Schema}}.inbox_text(value bytea) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN convert_from(value, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN encode(value, 'escape');
END $$;

-- A replayed dead letter has the headers x-outbox-late and x-outbox-replay: later events of its key may have had their effects.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_take(consumer_name text) RETURNS SETOF {{.Schema}}.inbox_due LANGUAGE sql AS $$
    SELECT p.event_id, coalesce(s.name, ''), p.topic, p.partition, p."offset", p.key, p.value,
        (SELECT coalesce(jsonb_object_agg(h.name, {{.Schema}}.inbox_text(h.value)), '{}')
         FROM unnest(p.header_names, p.header_values) AS h (name, value))
        || CASE WHEN p.class = 'replay' THEN '{"x-outbox-late": "1", "x-outbox-replay": "1"}'::jsonb ELSE '{}' END,
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
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_leaves(consumer_name text, parked {{.Schema}}.inbox_parked, becomes smallint)
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

-- Dead letters that were replayed or discarded are forgotten as ids are. Open ones stay.
CREATE INDEX inbox_dead_resolved ON {{.Schema}}.inbox_dead (consumer, coalesce(discarded_at, replayed_at))
    WHERE coalesce(discarded_at, replayed_at) IS NOT NULL;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_forget(
    consumer_name text, keep interval, blocks integer DEFAULT 128, pause interval DEFAULT '0') RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    hand bigint;
    deleted bigint;
BEGIN
    IF keep IS NULL OR keep < '0' OR blocks IS NULL OR blocks < 1 OR pause IS NULL THEN
        RAISE EXCEPTION 'keep is %, blocks % and pause %: keep is how long ids are kept and not negative, blocks is at least 1',
            coalesce(keep::text, 'NULL'), coalesce(blocks::text, 'NULL'), coalesce(pause::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT n.forget_block INTO hand FROM {{.Schema}}.inbox_consumer n
    WHERE n.consumer = c AND n.forgot_at <= now() - inbox_forget.pause FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF hand >= pg_relation_size((SELECT t.typrelid FROM pg_type t WHERE t.oid = pg_typeof(NULL::{{.Schema}}.inbox_event)))
        / current_setting('block_size')::bigint THEN
        hand := 0;
    END IF;
    DELETE FROM {{.Schema}}.inbox_event e
    WHERE e.ctid >= format('(%s,0)', hand)::tid AND e.ctid < format('(%s,0)', hand + blocks)::tid
      AND e.consumer = c AND e.state IN (0, 3) AND e.at < now() - keep;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    DELETE FROM {{.Schema}}.inbox_dead d WHERE d.id IN (
        SELECT l.id FROM {{.Schema}}.inbox_dead l
        WHERE l.consumer = c AND coalesce(l.discarded_at, l.replayed_at) < now() - keep
        ORDER BY coalesce(l.discarded_at, l.replayed_at) LIMIT 1000);
    UPDATE {{.Schema}}.inbox_consumer n SET forget_block = hand + blocks, forgot_at = now() WHERE n.consumer = c;
    RETURN deleted;
END $$;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_rewind(consumer_name text, topic text, partition integer, "offset" bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
BEGIN
    IF "offset" IS NULL OR "offset" < 0 THEN
        RAISE EXCEPTION 'the offset is %, and the first one of a partition is 0', coalesce("offset"::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE {{.Schema}}.inbox_offset o SET next_offset = inbox_rewind."offset", at = now()
    WHERE o.consumer = c AND o.topic = inbox_rewind.topic AND o.partition = inbox_rewind.partition
      AND o.next_offset > inbox_rewind."offset";
    RETURN FOUND;
END $$;
