-- Where the write-ahead log stood at the last take-over: it was of a slot that is older than that.
ALTER TABLE {{.Schema}}.cdc_relay_epoch ADD COLUMN taken_lsn pg_lsn;
