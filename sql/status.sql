-- The view names no column of the outbox but its id and what published_when names, so that the application's
-- migrations of other columns do not meet it. What an event is comes out of the row as a whole, where the names of
-- columns are text: Postgres knows of no dependency, and a column that is gone is NULL. A journal row that is older than
-- the outbox row, by its time and its transaction, is of another event that had the id before.
CREATE OR REPLACE VIEW {{.View}} AS
SELECT o.id,
       CASE WHEN j.event_id IS NOT NULL THEN 'published'
            WHEN p.event_id IS NOT NULL THEN CASE p.error_class WHEN 'blocked' THEN 'blocked' ELSE 'retrying' END
            WHEN d.original_id IS NOT NULL THEN 'failed'
            WHEN o.published THEN 'published'
            ELSE 'pending' END AS status,
       coalesce(j.published_at, o.published_at) AS published_at,
       coalesce(NULLIF(j.topic, ''), p.topic, d.topic) AS topic,
       CASE WHEN j.event_id IS NULL THEN d.partition WHEN j.partition >= 0 THEN j.partition END AS partition,
       CASE WHEN j."offset" >= 0 THEN j."offset" END AS "offset",
       coalesce(p.retry_count, 0) + coalesce(d.attempts, 0) AS retry_count, -- failed attempts, as {attempts} in outbox.retry_set
       p.next_retry_at,
       coalesce(p.last_error, d.last_error) AS last_error,
       coalesce(p.error_class, d.error_class) AS error_class,
       coalesce(p.last_error_at, d.dead_at) AS last_error_at{{.EventColumns}}
FROM (SELECT {{.ID}} AS id, {{.OwnPublishedAt}} AS published_at, ({{.PublishedWhen}}
      ) IS TRUE AS published, xmin AS xid, {{.Fields}} AS fields FROM {{.Outbox}} cdc_relay_row) o
LEFT JOIN LATERAL (
    SELECT j.* FROM {{.Schema}}.cdc_relay_source s
    JOIN {{.Schema}}.cdc_relay_journal j ON j.source = s.source AND j.event_id = o.id{{.CollateC}}
    WHERE s.table_oid = {{.OutboxLiteral}}::regclass
     AND CASE WHEN o.published OR age(o.xid) >= age(j.xmin) THEN true
      ELSE coalesce({{.Created}} <= j.published_at, true) END ORDER BY j.published_at LIMIT 1) j ON true
LEFT JOIN LATERAL (
    SELECT p.* FROM {{.Schema}}.cdc_relay_source s
    JOIN {{.Schema}}.cdc_relay_parked p ON p.source = s.source AND p.event_id = o.id{{.CollateC}}
    WHERE s.table_oid = {{.OutboxLiteral}}::regclass ORDER BY p.parked_at DESC LIMIT 1) p ON true
LEFT JOIN LATERAL (
    SELECT d.* FROM {{.Schema}}.cdc_relay_source s
    JOIN {{.DLQ}} d ON d.source = s.source AND d.original_id = o.id{{.CollateC}}
    WHERE s.table_oid = {{.OutboxLiteral}}::regclass ORDER BY d.dead_at DESC LIMIT 1) d ON true;
