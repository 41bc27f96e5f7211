-- What people ask of the relay that holds the slot. Commands and the API only write here; the relay executes, at once
-- when it runs and later when it does not, and notes how far it is in the transactions that do the work. Rows stay: they
-- say who did what. A kind that a relay does not know is finished with an error, so a newer command may write one.
CREATE TABLE {{.Schema}}.cdc_relay_request (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slot         text NOT NULL,
    kind         text NOT NULL, -- replay, discard, retry, pause, resume
    filter       jsonb NOT NULL,
    who          text NOT NULL,
    note         text,
    requested_at timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz,
    total        bigint, -- what it concerned when it was started
    done         bigint NOT NULL DEFAULT 0,
    error        text
);
CREATE INDEX cdc_relay_request_open ON {{.Schema}}.cdc_relay_request (slot, id) WHERE finished_at IS NULL;

-- The request that a replayed dead letter is parked for; its dead letter is open until it is journaled.
ALTER TABLE {{.Schema}}.cdc_relay_parked ADD COLUMN replay bigint;
CREATE INDEX cdc_relay_parked_replay ON {{.Schema}}.cdc_relay_parked (replay) WHERE replay IS NOT NULL;

-- Since when the relay takes nothing in, and who wanted that; NULL: it is not paused.
ALTER TABLE {{.Schema}}.cdc_relay_state ADD COLUMN paused_at timestamptz, ADD COLUMN paused_by text, ADD COLUMN paused_note text;
