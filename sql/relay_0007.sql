-- Systems that a source lived on before it was adopted by this one (pg_upgrade, dump and restore): records in the topics carry
-- the system that they were sent from, and those of a former one are the source's own all the same.
ALTER TABLE {{.Schema}}.cdc_relay_source ADD COLUMN former_systems text[] NOT NULL DEFAULT '{}';
