-- That what a dead letter would send is not what its outbox row says: since when, and by whom it was edited last.
ALTER TABLE {{.DLQ}} ADD COLUMN edited_at timestamptz, ADD COLUMN edited_by text;
