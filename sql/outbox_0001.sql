-- What belongs to one outbox: its dead letters and its status view.
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
    UNIQUE (source, original_id)
);

{{view.sql}}
