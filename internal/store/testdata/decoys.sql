-- What others may have in the same database, which has the names of ours, or is of the same kinds. It is there first, so
-- that a statement that does not ask whose it is finds it first. For everything_test.go.
CREATE TABLE public.visits (event_id text, created_at date);
CREATE SCHEMA decoy;
CREATE TABLE decoy.outbox_events (id bigint, seq int, note text, created_at date) PARTITION BY RANGE (id);
CREATE TABLE decoy.outbox_events_1 PARTITION OF decoy.outbox_events FOR VALUES FROM (0) TO (9);
CREATE TABLE decoy.outbox_events_dlq (original_id bigint);
CREATE TABLE decoy.cdc_relay_journal (event_id bigint);
CREATE TABLE decoy.cdc_relay_schema (part text, version integer);
CREATE PUBLICATION decoy FOR TABLE decoy.outbox_events WITH (publish = 'update');
