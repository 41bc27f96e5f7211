-- An id can be too long for a btree's entry, as that of the journal's key. Its event is a dead letter, so this table
-- takes an id of any length: a hash index does.
DO $do$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT conname FROM pg_constraint WHERE conrelid = {{.DLQLiteral}}::regclass AND contype = 'u' LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', {{.DLQLiteral}}, name);
    END LOOP;
END
$do$;
ALTER TABLE {{.DLQ}} ADD EXCLUDE USING hash ((source::text || '/' || original_id) WITH =);
CREATE INDEX ON {{.DLQ}} USING hash (original_id);
