-- The open dead letters in the order in which a replay takes them, which keeps that of each key.
CREATE INDEX ON {{.DLQ}} (source, epoch, from_stream, position_order, position_index, id) WHERE replayed_at IS NULL AND discarded_at IS NULL;
