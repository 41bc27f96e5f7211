-- What the stream brought while it could not be sent: pgoutput's messages, as they came, of whole transactions or of a
-- part of one. ends is where the last transaction that ends in the row ends in the WAL, as a number; 0: none does.
CREATE TABLE IF NOT EXISTS {{.Schema}}.cdc_relay_spool (
    source       integer NOT NULL,
    number       bigint NOT NULL,
    era          bigint NOT NULL,
    ends         bigint NOT NULL,
    committed_at timestamptz NOT NULL, -- the first of its transactions
    events       integer NOT NULL,
    data         bytea NOT NULL, -- compressed
    PRIMARY KEY (source, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE {{.Schema}}.cdc_relay_spool ALTER COLUMN data SET STORAGE EXTERNAL;
