-- What the reconciler knows across restarts, and which rows and events the stream had not delivered in their place.

-- horizon: rows of transactions that began before it were seen by a clean round, so that the next one begins there.
-- swept_at: when the whole table was last looked at. catch_up_late: rows of the present catch-up are marked as late.
ALTER TABLE {{.Schema}}.cdc_relay_state
    ADD COLUMN horizon timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN swept_at timestamptz,
    ADD COLUMN catch_up_late boolean NOT NULL DEFAULT false;

ALTER TABLE {{.Schema}}.cdc_relay_parked ADD COLUMN late boolean NOT NULL DEFAULT false;
