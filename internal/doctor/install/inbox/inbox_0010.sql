-- Claims several events of messages in their order for the caller's transaction, as inbox_claim does one, and returns the places
-- in the lists, from 1, of those that the caller has the effects of. The others are decided, or behind a parked one of their key.
CREATE FUNCTION {{.Schema}}.inbox_claim_together(
    consumer_name text, ids text[], topics text[], partitions integer[], keys bytea[], source_names text[]) RETURNS integer[]
LANGUAGE plpgsql SET lock_timeout = '200ms' SET enable_seqscan = off AS $$
DECLARE
    c   smallint := {{.Schema}}.inbox_register(consumer_name);
    won integer[];
BEGIN
    -- Refuses what is no id, and enters new sources.
    PERFORM {{.Schema}}.inbox_identity(ids[i], source_names[i]) FROM generate_subscripts(ids, 1) AS i
    WHERE coalesce(ids[i], '') = '' OR {{.Schema}}.inbox_is_uuid(ids[i]) IS NOT TRUE
        AND NOT EXISTS (SELECT FROM {{.Schema}}.inbox_source s WHERE s.name = source_names[i]);
    -- In one order, or two sessions could wait for each other.
    PERFORM {{.Schema}}.inbox_lock(consumer_name, l.topic, l.key)
    FROM (SELECT DISTINCT u.topic, u.key FROM unnest(topics, keys) AS u (topic, key) WHERE u.key IS NOT NULL ORDER BY 1, 2) l;
    WITH free AS MATERIALIZED (
        SELECT i AS place, CASE WHEN {{.Schema}}.inbox_is_uuid(ids[i]) THEN 0
                ELSE (SELECT s.source FROM {{.Schema}}.inbox_source s WHERE s.name = source_names[i]) END AS source,
            CASE WHEN {{.Schema}}.inbox_is_uuid(ids[i]) THEN lower(ids[i]) ELSE ids[i] END AS id
        FROM generate_subscripts(ids, 1) AS i
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
