-- What people changed of dead letters: one row per edit, with what was there before it. They go with their dead letter.
CREATE TABLE {{.Schema}}.cdc_relay_edit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source    integer NOT NULL,
    event_id  {{.IDType}}{{.CollateC}} NOT NULL,
    edited_at timestamptz NOT NULL DEFAULT now(),
    who       text NOT NULL,
    note      text,
    payload   bytea, -- before
    headers   text   -- before
);
CREATE INDEX cdc_relay_edit_event ON {{.Schema}}.cdc_relay_edit USING hash (event_id);
