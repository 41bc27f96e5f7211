-- One call writes an event into the outbox, from any language and any ORM, in the caller's transaction. It runs with the
-- rights of its owner, so that applications need no right on the table, and finds names where it says, not where they do.
CREATE OR REPLACE FUNCTION {{.Schema}}.emit(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    headers jsonb DEFAULT NULL, lock boolean DEFAULT false, id uuid DEFAULT NULL) RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    parent text := nullif(current_setting('outbox.traceparent', true), '');
    ms     bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
BEGIN
    IF lock THEN
        -- Until the commit: who emits for this aggregate, too, waits, so their events are in the order of their commits.
        PERFORM pg_advisory_xact_lock(hashtextextended(emit.aggregate_type || ' ' || emit.aggregate_id, 0));
    END IF;
    IF id IS NULL THEN -- of version 7, which gen_random_uuid is not
        id := overlay(overlay(gen_random_uuid()::text PLACING substr(lpad(to_hex(ms), 12, '0'), 1, 8) || '-'
              || substr(lpad(to_hex(ms), 12, '0'), 9, 4) FROM 1 FOR 13) PLACING '7' FROM 15 FOR 1)::uuid;
    END IF;
    IF parent IS NOT NULL AND NOT coalesce(headers ? 'traceparent', false) THEN
        headers := coalesce(headers, '{}') || jsonb_build_object('traceparent', parent);
    END IF;
    INSERT INTO {{.Outbox}} ({{.Columns}})
    VALUES (emit.id, emit.aggregate_type, emit.aggregate_id, emit.event_type, emit.payload, emit.headers);
    RETURN id;
END $$;
REVOKE ALL ON FUNCTION {{.Schema}}.emit(text, text, text, jsonb, jsonb, boolean, uuid) FROM PUBLIC;
