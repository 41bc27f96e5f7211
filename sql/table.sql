-- The outbox, when there is none. Rows are inserts; nothing but published_at is ever updated. An index that names
-- published_at, partial or not, would make every mark a non-HOT update: found by id, listed by the BRIN on created_at.
CREATE TABLE {{.Outbox}} (
    {{.ID}} uuid PRIMARY KEY DEFAULT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
        52, 1), 53, 1), 'hex')::uuid, -- version 7: begins with the time, so that index pages fill in order
    seq bigint GENERATED ALWAYS AS IDENTITY,{{.AggregateColumns}}
    {{.EventType}} text NOT NULL,
    {{.Payload}} jsonb,
    {{.Headers}} jsonb,
    {{.CreatedAt}} timestamptz NOT NULL DEFAULT clock_timestamp(),{{.ExtraColumns}}
    published_at timestamptz
) WITH (fillfactor = 80);
CREATE INDEX ON {{.Outbox}} USING brin ({{.CreatedAt}}) WITH (autosummarize = on);
