-- The death that the outbox row shows, by outbox.dead_set: dead_at as it was then. The index has what is not shown yet.
ALTER TABLE {{.DLQ}} ADD COLUMN shown_at timestamptz;
CREATE INDEX ON {{.DLQ}} (source, dead_at) WHERE replayed_at IS NULL AND shown_at IS DISTINCT FROM dead_at;
