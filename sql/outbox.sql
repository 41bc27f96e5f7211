-- What belongs to one outbox: its dead letters, whose ids may be too long for a btree, and its status view.
CREATE TABLE {{.DLQ}} (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source         integer NOT NULL,
    original_id    {{.IDType}}{{.CollateC}} NOT NULL,
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        {{.PayloadType}},
    headers        {{.HeadersType}},
    created_at     timestamptz,
    extra          jsonb,
    topic          text NOT NULL,
    key            bytea,
    partition      integer,
    position       text NOT NULL,
    epoch          bigint NOT NULL,
    from_stream    boolean NOT NULL,
    position_order bigint NOT NULL,
    position_index bigint NOT NULL,
    attempts       integer NOT NULL,
    error_class    text NOT NULL,
    error_code     text NOT NULL,
    last_error     text NOT NULL,
    dead_at        timestamptz NOT NULL DEFAULT now(),
    replayed_at    timestamptz,
    discarded_at   timestamptz,
    resolved_by    text,
    note           text,
    holds          boolean NOT NULL DEFAULT false, -- its lane waits until it is replayed or discarded (retry.on_dead: hold)
    replay         bigint, -- the request that replayed it last
    shown_at       timestamptz, -- the death that the outbox row shows, by outbox.dead_set: dead_at as it was then
    edited_at      timestamptz, -- since when it would send something else than its outbox row says
    edited_by      text,
    {{.DLQUnique}}
);

{{view.sql}}

-- Open dead letters; those that hold a lane; the order in which a replay takes them, which keeps that of each key; those
-- of a replay; those that the outbox row does not show yet.
CREATE INDEX ON {{.DLQ}} (source, dead_at) WHERE replayed_at IS NULL AND discarded_at IS NULL;
CREATE INDEX ON {{.DLQ}} (source, topic, md5(key)) WHERE holds AND replayed_at IS NULL AND discarded_at IS NULL;
CREATE INDEX ON {{.DLQ}} (source, epoch, from_stream, position_order, position_index, id) WHERE replayed_at IS NULL AND discarded_at IS NULL;
CREATE INDEX ON {{.DLQ}} (replay) WHERE replay IS NOT NULL;{{.DLQIndex}}
CREATE INDEX ON {{.DLQ}} (source, dead_at) WHERE replayed_at IS NULL AND shown_at IS DISTINCT FROM dead_at;
