-- What dlq.breaker must know across restarts: since when it is open and why, and which deaths a person has let pass.
ALTER TABLE {{.Schema}}.cdc_relay_state
    ADD COLUMN breaker_at timestamptz,
    ADD COLUMN breaker_said text,
    ADD COLUMN resumed_at timestamptz;
