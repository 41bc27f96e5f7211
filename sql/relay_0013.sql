-- Tells an event that the stream brings again from another one that uses its id again, say after TRUNCATE with RESTART IDENTITY:
-- the position in the stream, folded (outbox.Position.Mark). NULL: the event was read from the table, or journaled by an
-- older version; then the times tell.
ALTER TABLE {{.Schema}}.cdc_relay_journal ADD COLUMN IF NOT EXISTS stream_mark integer;
