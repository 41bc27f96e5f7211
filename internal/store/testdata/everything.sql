-- Events in every mixture of what the journal, the parked events, the dead letters and the outbox can say of one, and
-- twelve more that nothing knows, under a slot's own source; in other mixtures under a neighbour's. For everything_test.go.
CREATE SCHEMA every;
CREATE TABLE every.event AS
 SELECT source, slot, mine, i, ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid AS id,
  n % 2 = 1 AS journaled, n / 2 % 5 AS parked, n / 10 % 4 AS dead, CASE WHEN i < 120 THEN i / 40 ELSE 1 END AS row,
  CASE n / 3 % 2 WHEN 0 THEN 't' ELSE 'u' END AS topic,
  CASE WHEN n % 7 > 0 THEN ('k' || n / 5 % 4)::bytea END AS key,
  1 + n / 7 % 2 AS epoch, n * 5 % 3 > 0 AS from_stream, n * 37 % 120 AS place, n % 2 AS nth,
  now() - CASE n / 2 % 3 WHEN 0 THEN interval '9 h' WHEN 1 THEN interval '2 h' ELSE interval '1 min' END AS at,
  now() - CASE n / 3 % 3 WHEN 0 THEN interval '8 h' WHEN 1 THEN interval '3 h' ELSE interval '2 min' END AS later,
  n
 FROM (SELECT source, slot, true AS mine, i, CASE WHEN i < 120 THEN i ELSE 40 * (i - 120) END AS n
  FROM cdc_relay_source, generate_series(0, 131) i
  UNION ALL SELECT source + 1, 'neighbour', false, i, (i * 7 + 31 + i / 9) % 120 FROM cdc_relay_source, generate_series(0, 131) i) e;

INSERT INTO cdc_relay_source (source, slot, table_oid, table_name)
 SELECT source + 1, 'neighbour', table_oid::bigint + 1, 'other' FROM cdc_relay_source;
INSERT INTO cdc_relay_epoch (slot, epoch, taken_lsn) SELECT 'neighbour', epoch + 7, '0/1' FROM cdc_relay_epoch;
UPDATE cdc_relay_state SET confirmed = '1/0', era = 1, catch_up_ready = true, horizon = now() - interval '4 h',
 resumed_at = now() - interval '4 h';
INSERT INTO cdc_relay_state (slot, source, phase, dirty, confirmed, system_id, timeline, catch_up_ready, era,
 baseline_at, horizon, swept_at, catch_up_late, breaker_at, breaker_said, paused_at, paused_by)
 SELECT 'neighbour', source + 1, 'stream', false, 'FFFFFFFF/0', 'other', 9, true, 9, NULL, 'epoch',
 now() + interval '1 h', true, now(), 'why', now(), 'bob'
 FROM cdc_relay_state;

INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload, created_at, published_at)
 SELECT id, CASE i % 2 WHEN 0 THEN 'Order' ELSE 'User' END, 'k' || i / 5 % 4, 'e', '{}', at,
 CASE row WHEN 2 THEN later END FROM every.event WHERE mine AND row > 0 ORDER BY i * 7 % 131;
INSERT INTO cdc_relay_journal (source, event_id, topic, partition, "offset", published_at)
 SELECT source, id, CASE n % 5 WHEN 0 THEN '' ELSE topic END, n % 4, n, at FROM every.event WHERE journaled;
INSERT INTO cdc_relay_journal_batch (source, size, ids, mirrored, deleted, published_at, wal_lsn, xid)
 SELECT source, count(*), array_agg(id ORDER BY i), n / 4 % 2 = 0, n / 8 % 3 = 0, min(at),
 CASE n / 5 % 4 WHEN 0 THEN '7FFFFFFF/0' ELSE '0/1' END::pg_lsn, '3'
 FROM every.event WHERE journaled GROUP BY source, n / 3, n / 4 % 2, n / 8 % 3, n / 5 % 4 ORDER BY source, min(i);
INSERT INTO cdc_relay_request (slot, kind, filter, who, requested_at, started_at, finished_at)
 SELECT slot, kind, '{"all": true}', 'ann', now() - interval '1 h', now() - interval '1 h',
 CASE n WHEN 0 THEN NULL WHEN 1 THEN now() - interval '9 h' ELSE now() - interval '1 min' END
 FROM (SELECT DISTINCT slot FROM every.event) s, (VALUES (1, 'replay'), (2, 'reconcile'), (3, 'retry'), (4, 'pause')) k(k, kind),
 generate_series(0, 2) n ORDER BY slot = 'neighbour', k, n;
INSERT INTO cdc_relay_parked (source, event_id, topic, key, epoch, from_stream, position_order, position_index,
 aggregate_type, aggregate_id, event_type, payload, error_class, last_error, last_error_at, retry_count, next_retry_at,
 parked_at, late, replay, shown_at)
 SELECT source, id, topic, CASE WHEN n % 13 = 0 THEN 'f' ELSE key END, epoch, from_stream, place, nth,
 CASE n % 2 WHEN 0 THEN 'Order' ELSE 'User' END,
 'k' || n / 5 % 4, 'e' || n % 2, '{}', CASE n % 3 WHEN 0 THEN 'blocked' ELSE 'transient' END, 'why ' || n % 2,
 CASE WHEN n % 4 > 0 THEN at END, n / 2 % 3,
 CASE parked WHEN 2 THEN at WHEN 3 THEN now() + (at - now()) * -1 WHEN 4 THEN 'infinity' END, at, n % 11 = 0,
 CASE WHEN n % 6 < 2 THEN (SELECT min(id) + n % 6 FROM cdc_relay_request r WHERE r.slot = e.slot) END,
 CASE WHEN n % 8 < 4 THEN at END
 FROM every.event e WHERE parked > 0;
INSERT INTO outbox_events_dlq (source, original_id, aggregate_type, aggregate_id, event_type, payload, topic, key, position,
 epoch, from_stream, position_order, position_index, attempts, error_class, error_code, last_error, dead_at, holds,
 replayed_at, discarded_at, edited_at, edited_by, replay, shown_at)
 SELECT source, id, CASE n % 2 WHEN 0 THEN 'Order' ELSE 'User' END, 'k' || n / 5 % 4, 'e' || n % 2,
 CASE WHEN mine THEN '{"dead": "mine"}' ELSE '{"dead": "another"}' END::jsonb, topic,
 CASE WHEN mine THEN key WHEN n % 5 = 1 THEN 'f' WHEN n % 5 = 2 THEN 'z' ELSE key END, '0/1',
 epoch, from_stream, place, nth, 1 + n % 3, CASE n % 3 WHEN 0 THEN 'blocked' ELSE 'permanent' END, 'C' || n % 2, 'why ' || n % 3,
 later, n / 3 % 2 = 0, CASE dead WHEN 2 THEN at END, CASE dead WHEN 3 THEN at END, CASE WHEN n % 9 < 3 THEN at END, 'ann',
 CASE WHEN n % 6 < 2 THEN (SELECT min(id) + n % 6 FROM cdc_relay_request r WHERE r.slot = e.slot) END,
 CASE WHEN n % 8 < 4 THEN later END
 FROM every.event e WHERE dead > 0 ORDER BY n * 11 % 120;
INSERT INTO cdc_relay_edit (source, event_id, edited_at, who, payload)
 SELECT source, id, later, CASE WHEN mine THEN 'ann' || g ELSE 'bob' END, '{}' FROM every.event, generate_series(1, 2) g
 WHERE dead > 0 AND (n % 9 < 3 OR NOT mine);
INSERT INTO cdc_relay_catch_up (source, row_number, event_id)
 SELECT source, i + 1, id FROM every.event WHERE row > 0 OR NOT mine;
INSERT INTO cdc_relay_offset (slot, topic, partition, next_offset)
 SELECT slot, topic, p, o + p FROM (SELECT DISTINCT slot FROM every.event) s,
 (VALUES (7, 'v'), (9, 't'), (3, 'u')) x(o, topic), (VALUES (2), (-1), (0), (1)) y(p);
INSERT INTO cdc_relay_spool (source, number, era, ends, committed_at, events, data)
 SELECT source, n + CASE WHEN mine THEN 0 ELSE 100 END, 1, CASE n WHEN 3 THEN 0 WHEN 5 THEN 0 ELSE n * 10 END, now(), n, 'x'
 FROM (SELECT DISTINCT source, mine FROM every.event) s, generate_series(2, 5) n;
INSERT INTO cdc_relay_alarms (source, kind, topic, partition, detail, repair, first_seen, last_seen, count,
 acknowledged_at) SELECT DISTINCT source, 'k', 't' || a, 0, '', '', now(), now(), 1, CASE a % 2 WHEN 0 THEN now() END
 FROM every.event, generate_series(1, 4) a ORDER BY source, 3;
INSERT INTO cdc_relay_offset (slot, topic, partition, next_offset) VALUES ('neighbour', 'x', -1, 0);
UPDATE cdc_relay_parked SET topic = 'w' WHERE source IN (SELECT source FROM cdc_relay_source WHERE slot = 'neighbour')
 AND position_order = 3;
-- Rows that were changed last lie last, so that a statement that does not ask whose they are finds the neighbour's first.
UPDATE cdc_relay_source SET slot = slot WHERE slot <> 'neighbour';
UPDATE cdc_relay_epoch SET slot = slot WHERE slot <> 'neighbour';
UPDATE cdc_relay_state SET slot = slot WHERE slot <> 'neighbour';
ANALYZE
