-- Ids are forgotten by a hand that goes round the table. A BRIN on the time finds old rows only while the table grows: when
-- new rows have filled the places of old ones, its ranges reach back to the oldest row that was ever there, and a look
-- for what is old reads the whole table.
ALTER TABLE {{.Schema}}.inbox_consumer
    ADD COLUMN forget_block bigint NOT NULL DEFAULT 0, -- the hand: the block of inbox_event to look through next
    ADD COLUMN forgot_at timestamptz NOT NULL DEFAULT '-infinity';
DROP INDEX IF EXISTS {{.Schema}}.inbox_event_at;

-- Looks through the next blocks of inbox_event, deletes the consumer's ids there that were decided longer ago than keep, and
-- says how many. Those of parked events and of dead letters stay. It goes round the table with each call, and does
-- nothing where another session does it or did within pause.
CREATE FUNCTION {{.Schema}}.inbox_forget(
    consumer_name text, keep interval, blocks integer DEFAULT 128, pause interval DEFAULT '0') RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    c smallint := {{.Schema}}.inbox_known(consumer_name);
    hand bigint;
    deleted bigint;
BEGIN
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
    UPDATE {{.Schema}}.inbox_consumer n SET forget_block = hand + blocks, forgot_at = now() WHERE n.consumer = c;
    RETURN deleted;
END $$;
