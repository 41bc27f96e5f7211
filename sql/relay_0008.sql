-- An id can be too long for a btree's entry, and its event is a dead letter then. With retry.on_dead: hold it is parked
-- until its turn comes, so nothing here may be limited by the length of an id. A hash index is not.
ALTER TABLE {{.Schema}}.cdc_relay_parked
    DROP CONSTRAINT cdc_relay_parked_pkey,
    ADD COLUMN number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ADD EXCLUDE USING hash ((source::text || '/' || event_id) WITH =);
CREATE INDEX ON {{.Schema}}.cdc_relay_parked USING hash (event_id);
