package io.github.cdcrelay.inbox;

import java.util.Map;

/**
 * What a handler gets.
 *
 * @param id the same in every message of the event
 * @param source the outbox in which ids that are not uuids are unique
 * @param key null: the event has no order
 * @param payload maps, lists, strings, Long, BigDecimal and Boolean. null: a tombstone, or JSON null
 * @param json the payload's text, for your JSON library. null: a tombstone
 * @param attempt from 1
 * @param late it may come after later events of its key
 * @param replay a dead letter that was replayed, which is late too
 */
public record Event(String id, String source, String type, String aggregateType, String key, Object payload,
        String json, Map<String, String> headers, String topic, int partition, long offset, int attempt, boolean late,
        boolean replay) {

    /**
     * Reads a message as an inbox does, for tests of handlers.
     *
     * @throws Permanent if the payload is not JSON
     */
    public static Event of(Message message, int attempt) {
        return new Read(message).event(attempt);
    }

    /** Returns the payload's fields. Empty: a tombstone, or JSON null. */
    @SuppressWarnings("unchecked")
    public Map<String, Object> fields() {
        if (payload == null) {
            return Map.of();
        } else if (payload instanceof Map) {
            return (Map<String, Object>) payload;
        }
        throw new Permanent("the payload is not an object");
    }
}
