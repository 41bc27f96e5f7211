-- The request that replayed a dead letter last, so that whoever asked can be told what became of it.
ALTER TABLE {{.DLQ}} ADD COLUMN replay bigint;
CREATE INDEX ON {{.DLQ}} (replay) WHERE replay IS NOT NULL;
