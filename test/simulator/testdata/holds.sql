-- A line for each fact in the relay's tables and the outbox, as server.holds has them of the made-up ones. A time is in
-- microseconds; - is none.
SELECT concat_ws(' ', 'source', source, slot, table_oid) FROM public.cdc_relay_source
UNION ALL
SELECT concat_ws(' ', 'state', s.slot, s.source, phase, dirty, confirmed, timeline, epoch, catch_up_ready, era, catch_up_late,
    coalesce(taken_lsn, '0/0'))
FROM public.cdc_relay_state s JOIN public.cdc_relay_epoch e USING (slot)
UNION ALL
SELECT concat_ws(' ', 'audit', slot, (extract(epoch FROM horizon) * 1000000)::bigint,
    coalesce((extract(epoch FROM swept_at) * 1000000)::bigint::text, '-'))
FROM public.cdc_relay_state
UNION ALL
SELECT concat_ws(' ', 'pause', slot, coalesce((extract(epoch FROM paused_at) * 1000000)::bigint::text, '-'),
    coalesce(paused_by, '-'))
FROM public.cdc_relay_state
UNION ALL
SELECT concat_ws(' ', 'breaker', slot, breaker_at IS NOT NULL, coalesce(breaker_said, '-'),
    coalesce((extract(epoch FROM resumed_at) * 1000000)::bigint::text, '-'))
FROM public.cdc_relay_state
UNION ALL
SELECT concat_ws(' ', 'journal', source, event_id, topic, partition, "offset",
    (extract(epoch FROM published_at) * 1000000)::bigint)
FROM public.cdc_relay_journal
UNION ALL
SELECT concat_ws(' ', 'batch', source, row_number() OVER (PARTITION BY source ORDER BY batch), size,
    (SELECT string_agg(id, ',' ORDER BY id COLLATE "C") FROM unnest(ids) id), wal_lsn,
    (extract(epoch FROM published_at) * 1000000)::bigint, mirrored, deleted)
FROM public.cdc_relay_journal_batch
UNION ALL
SELECT concat_ws(' ', 'parked', source, event_id, topic, coalesce('[' || convert_from(key, 'UTF8') || ']', '-'), epoch,
    NOT from_stream, position_order, position_index, coalesce('[' || aggregate_type || ']', '-'),
    coalesce('[' || aggregate_id || ']', '-'), coalesce('[' || event_type || ']', '-'),
    coalesce('[' || convert_from(payload, 'UTF8') || ']', '-'), coalesce('[' || headers || ']', '-'),
    coalesce('[' || created_at || ']', '-'), retry_count,
    CASE WHEN next_retry_at IS NULL THEN '-' WHEN next_retry_at = 'infinity' THEN 'when well'
        ELSE (extract(epoch FROM next_retry_at) * 1000000)::bigint::text END,
    error_class, (extract(epoch FROM last_error_at) * 1000000)::bigint, late, coalesce(replay, 0))
FROM public.cdc_relay_parked
UNION ALL
SELECT concat_ws(' ', 'spooled', source, number, era, ends, (extract(epoch FROM committed_at) * 1000000)::bigint, events,
    octet_length(data))
FROM public.cdc_relay_spool
UNION ALL
SELECT concat_ws(' ', 'dead', source, original_id, topic, coalesce('[' || convert_from(key, 'UTF8') || ']', '-'), epoch,
    NOT from_stream, position_order, position_index, coalesce('[' || aggregate_type || ']', '-'),
    coalesce('[' || aggregate_id || ']', '-'), coalesce('[' || event_type || ']', '-'),
    coalesce('[' || payload::text || ']', '-'), coalesce('[' || headers::text || ']', '-'), attempts, error_class,
    error_code, holds, (extract(epoch FROM dead_at) * 1000000)::bigint, replayed_at IS NOT NULL,
    discarded_at IS NOT NULL, coalesce(replay, 0), row_number() OVER (ORDER BY id))
FROM public.outbox_events_dlq
UNION ALL
SELECT concat_ws(' ', 'list', source, row_number, event_id) FROM public.cdc_relay_catch_up
UNION ALL
SELECT concat_ws(' ', 'topic', slot, topic) FROM public.cdc_relay_offset WHERE partition = -1
UNION ALL
SELECT concat_ws(' ', 'offset', slot, topic, partition, next_offset) FROM public.cdc_relay_offset WHERE partition >= 0
UNION ALL
SELECT concat_ws(' ', 'request', id, slot, kind, coalesce((extract(epoch FROM started_at) * 1000000)::bigint::text, '-'),
    coalesce((extract(epoch FROM finished_at) * 1000000)::bigint::text, '-'), coalesce(total::text, '-'), done,
    error IS NOT NULL)
FROM public.cdc_relay_request
UNION ALL
SELECT concat_ws(' ', 'row', seq, id, published_at IS NOT NULL) FROM public.outbox_events
