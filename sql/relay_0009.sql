-- What a topic lost or moved, until a person acknowledges it. One row per kind and topic is open; acknowledged rows stay,
-- they say who looked at what.
CREATE TABLE {{.Schema}}.cdc_relay_alarms (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source          integer NOT NULL,
    kind            text NOT NULL, -- lost_data, offsets_went_back, partitions_changed
    topic           text NOT NULL,
    partition       integer NOT NULL, -- that it was seen at last; -1: the topic as a whole
    detail          text NOT NULL,
    repair          text NOT NULL, -- the command that brings back what was lost; empty where nothing was
    first_seen      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    count           bigint NOT NULL,
    acknowledged_at timestamptz,
    acknowledged_by text
);
CREATE UNIQUE INDEX cdc_relay_alarms_open ON {{.Schema}}.cdc_relay_alarms (source, kind, topic) WHERE acknowledged_at IS NULL;
