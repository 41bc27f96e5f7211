package io.github.cdcrelay.emit;

import java.util.Map;
import java.util.UUID;

/**
 * One row for the outbox. Events of one aggregate keep the order of their commits.
 *
 * @param id null: a new one of version 7
 * @param aggregateType chooses the topic
 * @param payload a Map, Iterable, array of objects, String, Number or Boolean, encoded as JSON, or {@link Json}. null:
 *     a tombstone. Bytes are refused: JSON holds them only as base64
 * @param headers null or empty: none
 * @param lock locks the aggregate until the commit. Use it if the event depends on state that other transactions change
 */
public record Event(UUID id, String aggregateType, String aggregateId, String type, Object payload,
        Map<String, String> headers, boolean lock) {

    /** Returns an event without headers, with a new id. */
    public static Event of(String aggregateType, String aggregateId, String type, Object payload) {
        return new Event(null, aggregateType, aggregateId, type, payload, null, false);
    }

    public Event withId(UUID id) {
        return new Event(id, aggregateType, aggregateId, type, payload, headers, lock);
    }

    public Event withHeaders(Map<String, String> headers) {
        return new Event(id, aggregateType, aggregateId, type, payload, headers, lock);
    }

    public Event withLock() {
        return new Event(id, aggregateType, aggregateId, type, payload, headers, true);
    }
}
