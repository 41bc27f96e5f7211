package io.github.cdcrelay.inbox;

import java.util.Map;

/**
 * A message as a broker delivered it.
 *
 * @param key null: it has no order
 * @param value null: a tombstone
 */
public record Message(String topic, int partition, long offset, byte[] key, byte[] value,
        Map<String, String> headers) {}
