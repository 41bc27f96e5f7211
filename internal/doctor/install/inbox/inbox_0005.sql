-- What is parked behind an event that leaves just then has its turn: who parks and who takes out look at a key one at a
-- time, as inbox_claim does.
CREATE FUNCTION {{.Schema}}.inbox_lock(consumer_name text, topic text, key bytea) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(consumer_name || ' ' || topic || ' ' || encode(key, 'hex'), 19))
    WHERE key IS NOT NULL
$$;

-- When an event is due that is parked behind others: now, if none is there any more. Under inbox_lock.
CREATE FUNCTION {{.Schema}}.inbox_behind(consumer smallint, topic text, partition integer, lane bytea) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT now() WHERE NOT EXISTS (SELECT FROM {{.Schema}}.inbox_parked p WHERE p.consumer = inbox_behind.consumer
        AND p.topic = inbox_behind.topic AND p.partition = inbox_behind.partition AND p.lane = inbox_behind.lane)
$$;

-- What waits for each other has the same lane. An entry of the lanes' index could not hold a long key.
CREATE FUNCTION {{.Schema}}.inbox_lane(key bytea, "offset" bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN key IS NULL THEN 'o'::bytea || int8send("offset") WHEN length(key) > 2000 THEN 'h'::bytea || sha256(key)
        ELSE 'k'::bytea || key END
$$;
UPDATE {{.Schema}}.inbox_parked p SET lane = {{.Schema}}.inbox_lane(p.key, p."offset") WHERE length(p.key) > 2000;
UPDATE {{.Schema}}.inbox_dead d SET lane = {{.Schema}}.inbox_lane(d.key, d."offset") WHERE length(d.key) > 2000;

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_claim(
    consumer_name text, id text, topic text DEFAULT NULL, partition integer DEFAULT NULL, key bytea DEFAULT NULL,
    source_name text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_register(consumer_name);
    i record;
    s smallint;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    IF key IS NOT NULL THEN
        -- Or its lane could be parked between this look and the claim.
        PERFORM {{.Schema}}.inbox_lock(consumer_name, inbox_claim.topic, inbox_claim.key);
        IF EXISTS (SELECT FROM {{.Schema}}.inbox_parked p WHERE p.consumer = c AND p.topic = inbox_claim.topic
                   AND p.partition = inbox_claim.partition AND p.lane = {{.Schema}}.inbox_lane(inbox_claim.key, NULL))
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

CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_park(
    consumer_name text, id text, topic text, partition integer, "offset" bigint, key bytea, value bytea,
    headers jsonb DEFAULT '{}', type text DEFAULT '', error text DEFAULT '', attempts integer DEFAULT 1,
    next_at timestamptz DEFAULT now() + interval '1 minute', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_register(consumer_name);
    in_lane bytea := {{.Schema}}.inbox_lane(inbox_park.key, inbox_park."offset");
    i record;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
    PERFORM {{.Schema}}.inbox_lock(consumer_name, inbox_park.topic, inbox_park.key);
    INSERT INTO {{.Schema}}.inbox_event (consumer, source, event_id, state) VALUES (c, i.source, i.event_id, 1)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {{.Schema}}.inbox_parked AS p (consumer, source, event_id, topic, partition, "offset", lane, key, type, value,
        header_names, header_values, sent_at, attempts, next_at, class, error)
    SELECT c, i.source, i.event_id, inbox_park.topic, inbox_park.partition, inbox_park."offset", in_lane,
        inbox_park.key, inbox_park.type, inbox_park.value,
        coalesce(array_agg(h.key ORDER BY h.key) FILTER (WHERE h.key IS NOT NULL), '{}'),
        coalesce(array_agg(convert_to(h.value, 'UTF8') ORDER BY h.key) FILTER (WHERE h.key IS NOT NULL), '{}'),
        now(), inbox_park.attempts, coalesce(inbox_park.next_at,
            {{.Schema}}.inbox_behind(c, inbox_park.topic, inbox_park.partition, in_lane)),
        'transient', inbox_park.error
    FROM (SELECT) one LEFT JOIN jsonb_each_text(inbox_park.headers) h ON true;
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
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
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

-- Tries a dead letter again, or a parked event at once, after those of its key before it. False: there is nothing of that id to try.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_replay(
    consumer_name text, id text, by text DEFAULT current_user, note text DEFAULT '', source_name text DEFAULT '')
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    i record;
    d {{.Schema}}.inbox_dead;
BEGIN
    SELECT * INTO i FROM {{.Schema}}.inbox_identity(id, source_name);
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

-- Keys whose first parked event waits for one that is gone, by discards of a version before this one.
UPDATE {{.Schema}}.inbox_parked p SET next_at = now() WHERE next_at IS NULL AND NOT EXISTS (
    SELECT FROM {{.Schema}}.inbox_parked b WHERE b.consumer = p.consumer AND b.topic = p.topic
      AND b.partition = p.partition AND b.lane = p.lane AND b.seq < p.seq);
