-- Uses subscripts because the planner estimates unnest by the length of the array, and plans each call with a short one again.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_same(
    c smallint, known_name text, known timestamptz, known_file text, last_sources smallint[], last_ids text[],
    last_parked boolean[], last_topics text[], last_partitions integer[], last_offsets bigint[]) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
    SELECT last_ids[i] INTO lost FROM generate_subscripts(last_ids, 1) AS i
    WHERE (SELECT last_parked[i] OR e.state <> 1 FROM {{.Schema}}.inbox_event e
           WHERE e.consumer = c AND e.source = last_sources[i] AND e.event_id = last_ids[i] LIMIT 1) IS NOT TRUE
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event % is gone, which this process has committed', quote_literal(lost) USING ERRCODE = 'IB001';
    END IF;
END $$;

-- Most events are new, and ON CONFLICT costs half of the time that their rows take. An attempt without it takes the number of
-- a transaction more, so that it is for many events only.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_claim_events(
    c smallint, known_name text, known timestamptz, known_file text, last_sources smallint[], last_ids text[],
    last_parked boolean[], last_topics text[], last_partitions integer[], last_offsets bigint[], sources smallint[], ids text[])
RETURNS TABLE (place integer, state smallint, decided timestamptz) LANGUAGE plpgsql
SET lock_timeout = '200ms' SET enable_seqscan = off AS $$
DECLARE
    won_sources smallint[];
    won_ids     text[];
BEGIN
    PERFORM {{.Schema}}.inbox_same(c, known_name, known, known_file, last_sources, last_ids, last_parked,
        last_topics, last_partitions, last_offsets);
    IF cardinality(ids) >= 8 THEN
        BEGIN
            INSERT INTO {{.Schema}}.inbox_event (consumer, source, event_id, state)
            SELECT c, u.source, u.id, 0 FROM unnest(sources, ids) AS u (source, id) ORDER BY u.source, u.id COLLATE "C";
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
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
        CROSS JOIN LATERAL (SELECT n.state, n.at FROM {{.Schema}}.inbox_event n
            WHERE n.consumer = c AND n.source = u.source AND n.event_id = u.id LIMIT 1) e
        WHERE NOT EXISTS (
            SELECT FROM unnest(won_sources, won_ids) AS w (source, id) WHERE w.source = u.source AND w.id = u.id);
    END IF;
END $$;
