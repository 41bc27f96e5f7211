-- A dead letter with holds keeps its lane waiting until it is replayed or discarded (retry.on_dead: hold). Both indexes
-- have entries of open dead letters only.
ALTER TABLE {{.DLQ}} ADD COLUMN holds boolean NOT NULL DEFAULT false;
CREATE INDEX ON {{.DLQ}} (source, dead_at) WHERE replayed_at IS NULL AND discarded_at IS NULL;
CREATE INDEX ON {{.DLQ}} (source, topic, md5(key)) WHERE holds AND replayed_at IS NULL AND discarded_at IS NULL;
