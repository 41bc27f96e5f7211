-- The failure that the outbox row shows, by outbox.retry_set: last_error_at as it was then.
ALTER TABLE {{.Schema}}.cdc_relay_parked ADD COLUMN shown_at timestamptz;
