-- Without a WHERE the planner inlines it, and a call takes a tenth of the time. NULL for a NULL key: the functions are strict.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_lock(consumer_name text, topic text, key bytea) RETURNS void LANGUAGE sql AS $$
    SELECT pg_advisory_xact_lock(hashtextextended(consumer_name || ' ' || topic || ' ' || encode(key, 'hex'), 19))
$$;

-- The same as before, except that it looks at each id once, at uuids all together, and first tries without ON CONFLICT, as
-- inbox_claim_events does.
CREATE OR REPLACE FUNCTION {{.Schema}}.inbox_claim_together(
    consumer_name text, ids text[], topics text[], partitions integer[], keys bytea[], source_names text[]) RETURNS integer[]
LANGUAGE plpgsql SET lock_timeout = '200ms' SET enable_seqscan = off AS $$
DECLARE
    c       smallint := {{.Schema}}.inbox_register(consumer_name);
    joined  text := array_to_string(ids, ' ', '');
    sources smallint[];
    won     integer[];
BEGIN
    -- Only uuids: of that length and form no id holds a space. Matched one by one they took a third of the call's time.
    IF length(joined) = 37 * cardinality(ids) - 1
        AND joined ~* '^(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?: |$))+$' THEN
        sources := array_fill(0::smallint, ARRAY[cardinality(ids)]);
        ids := string_to_array(lower(joined COLLATE "C"), ' ');
    ELSE
        -- Refuses what is no id, and enters new sources.
        PERFORM {{.Schema}}.inbox_identity(ids[i], source_names[i]) FROM generate_subscripts(ids, 1) AS i
        WHERE coalesce(ids[i], '') = '' OR {{.Schema}}.inbox_is_uuid(ids[i]) IS NOT TRUE
            AND NOT EXISTS (SELECT FROM {{.Schema}}.inbox_source s WHERE s.name = source_names[i]);
        SELECT array_agg(CASE WHEN u.uuid THEN 0
                ELSE (SELECT s.source FROM {{.Schema}}.inbox_source s WHERE s.name = source_names[u.i]) END ORDER BY u.i),
            array_agg(CASE WHEN u.uuid THEN lower(u.id) ELSE u.id END ORDER BY u.i) INTO sources, ids
        FROM (SELECT i, ids[i] AS id, {{.Schema}}.inbox_is_uuid(ids[i]) AS uuid FROM generate_subscripts(ids, 1) AS i
            OFFSET 0) u;
    END IF;
    -- In one order, or two sessions could wait for each other.
    PERFORM {{.Schema}}.inbox_lock(consumer_name, l.topic, l.key)
    FROM (SELECT DISTINCT u.topic, u.key FROM unnest(topics, keys) AS u (topic, key) WHERE u.key IS NOT NULL ORDER BY 1, 2) l;
    IF cardinality(ids) >= 8 THEN
        BEGIN
            WITH free AS MATERIALIZED (
                SELECT i AS place, sources[i] AS source, ids[i] AS id FROM generate_subscripts(ids, 1) AS i
                WHERE keys[i] IS NULL OR (SELECT true FROM {{.Schema}}.inbox_parked p WHERE p.consumer = c
                    AND p.topic = topics[i] AND p.partition = partitions[i]
                    AND p.lane = {{.Schema}}.inbox_lane(keys[i], NULL) LIMIT 1) IS NOT TRUE),
            entered AS (
                INSERT INTO {{.Schema}}.inbox_event (consumer, source, event_id, state)
                SELECT c, f.source, f.id, 0 FROM free f ORDER BY f.source, f.id COLLATE "C")
            SELECT coalesce(array_agg(f.place ORDER BY f.place), '{}') INTO won FROM free f;
            RETURN won;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT i AS place, sources[i] AS source, ids[i] AS id FROM generate_subscripts(ids, 1) AS i
        WHERE keys[i] IS NULL OR (SELECT true FROM {{.Schema}}.inbox_parked p WHERE p.consumer = c AND p.topic = topics[i]
            AND p.partition = partitions[i] AND p.lane = {{.Schema}}.inbox_lane(keys[i], NULL) LIMIT 1) IS NOT TRUE),
    entered AS (
        INSERT INTO {{.Schema}}.inbox_event AS e (consumer, source, event_id, state)
        SELECT c, f.source, f.id, 0 FROM free f ORDER BY f.source, f.id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING e.source, e.event_id),
    firsts AS (
        SELECT min(f.place) AS place FROM free f JOIN entered e ON e.source = f.source AND e.event_id = f.id
        GROUP BY f.source, f.id)
    SELECT coalesce(array_agg(f.place ORDER BY f.place), '{}') INTO won FROM firsts f;
    RETURN won;
END $$;
