-- Stops a process whose database is no longer the one that it has read its offsets from: the server was started again, the
-- database was swapped for another one, the tables were restored, or what the process committed or read last is gone.
-- last_parked: the process has parked such an event; otherwise its row says another state. Offsets only grow.
CREATE FUNCTION {{.Schema}}.inbox_same(
    c smallint, known_name text, known timestamptz, known_file text, last_sources smallint[], last_ids text[],
    last_parked boolean[], last_topics text[], last_partitions integer[], last_offsets bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lost text;
BEGIN
    IF pg_postmaster_start_time() <> known THEN
        RAISE EXCEPTION 'the server is not the one that this process has read its offsets from'
            USING ERRCODE = 'IB001';
    ELSIF {{.Schema}}.inbox_file() IS DISTINCT FROM known_file THEN
        RAISE EXCEPTION 'the database or its inbox tables are not those that this process has read its offsets from'
            USING ERRCODE = 'IB001';
    END IF;
    IF cardinality(last_topics) > 0 THEN
        SELECT format('offset %s of %s/%s', u.next, u.topic, u.number) INTO lost
        FROM unnest(last_topics, last_partitions, last_offsets) AS u (topic, number, next)
        WHERE NOT EXISTS (SELECT FROM {{.Schema}}.inbox_offset o WHERE o.consumer = c AND o.topic = u.topic
                            AND o.partition = u.number AND o.next_offset >= u.next)
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '% is gone, which this process has read', lost USING ERRCODE = 'IB001';
        END IF;
    END IF;
    IF cardinality(last_ids) = 0 THEN
        IF cardinality(last_topics) = 0
           AND NOT EXISTS (SELECT FROM {{.Schema}}.inbox_consumer n WHERE n.consumer = c AND n.name = known_name) THEN
            RAISE EXCEPTION 'consumer % has another number than this process has read', quote_literal(known_name)
                USING ERRCODE = 'IB001';
        END IF;
        RETURN;
    END IF;
    SELECT u.id INTO lost FROM unnest(last_sources, last_ids, last_parked) AS u (source, id, parked)
    WHERE NOT EXISTS (SELECT FROM {{.Schema}}.inbox_event e
                      WHERE e.consumer = c AND e.source = u.source AND e.event_id = u.id AND (u.parked OR e.state <> 1))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event % is gone, which this process has committed', quote_literal(lost) USING ERRCODE = 'IB001';
    END IF;
END $$;

-- The file of inbox_offset. It has the database's number in it, and a restore that makes or empties the table gives it another.
CREATE FUNCTION {{.Schema}}.inbox_file() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT pg_relation_filepath($name${{.Schema}}.inbox_offset$name$::regclass)
$$;

-- inbox_claim_all behind inbox_same. decided: when.
CREATE FUNCTION {{.Schema}}.inbox_claim_events(
    c smallint, known_name text, known timestamptz, known_file text, last_sources smallint[], last_ids text[],
    last_parked boolean[], last_topics text[], last_partitions integer[], last_offsets bigint[], sources smallint[], ids text[])
RETURNS TABLE (place integer, state smallint, decided timestamptz) LANGUAGE plpgsql SET lock_timeout = '200ms' AS $$
DECLARE
    won_sources smallint[];
    won_ids     text[];
BEGIN
    PERFORM {{.Schema}}.inbox_same(c, known_name, known, known_file, last_sources, last_ids, last_parked,
        last_topics, last_partitions, last_offsets);
    WITH won AS (
        INSERT INTO {{.Schema}}.inbox_event AS e (consumer, source, event_id, state)
        SELECT c, u.source, u.id, 0 FROM unnest(sources, ids) AS u (source, id) ORDER BY u.source, u.id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING e.source, e.event_id)
    SELECT array_agg(w.source), array_agg(w.event_id) INTO won_sources, won_ids FROM won w;
    IF coalesce(cardinality(won_ids), 0) < cardinality(ids) THEN
        RETURN QUERY
        SELECT u.place::integer, e.state, e.at
        FROM unnest(sources, ids) WITH ORDINALITY AS u (source, id, place)
        JOIN {{.Schema}}.inbox_event e ON e.consumer = c AND e.source = u.source AND e.event_id = u.id
        WHERE NOT EXISTS (
            SELECT FROM unnest(won_sources, won_ids) AS w (source, id) WHERE w.source = u.source AND w.id = u.id);
    END IF;
END $$;

-- Has a consumer handle a partition again from an offset on, also while it runs: within a second it begins again there, and
-- skips what it has done. False: its offset is not above. Ids that are forgotten are not known: their effects come again.
CREATE FUNCTION {{.Schema}}.inbox_rewind(consumer_name text, topic text, partition integer, "offset" bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
BEGIN
    UPDATE {{.Schema}}.inbox_offset o SET next_offset = inbox_rewind."offset", at = now()
    WHERE o.consumer = c AND o.topic = inbox_rewind.topic AND o.partition = inbox_rewind.partition
      AND o.next_offset > inbox_rewind."offset";
    RETURN FOUND;
END $$;

-- By the primary key: an id that is a uuid has source 0.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_state(consumer_name text, id text, source_name text DEFAULT '') RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    c smallint;
    s smallint := 0;
    found_state smallint;
    wanted text := lower(id);
BEGIN
    SELECT n.consumer INTO c FROM {{.Schema}}.inbox_consumer n WHERE n.name = consumer_name;
    IF id !~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        SELECT o.source INTO s FROM {{.Schema}}.inbox_source o WHERE o.name = source_name;
        wanted := id;
    END IF;
    SELECT e.state INTO found_state FROM {{.Schema}}.inbox_event e
    WHERE e.consumer = c AND e.source = s AND e.event_id = wanted;
    RETURN {{.Schema}}.inbox_word(found_state);
END $$;
