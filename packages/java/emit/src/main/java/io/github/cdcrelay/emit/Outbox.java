package io.github.cdcrelay.emit;

import java.security.SecureRandom;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.UUID;

/**
 * Writes events into the outbox, in the transaction that makes them true: one call of the SQL function emit, which
 * {@code cdc-relay init --emit} creates. It neither begins nor ends a transaction.
 */
public final class Outbox {
    private static final String CALL = """
            SELECT emit(aggregate_type => ?::text, aggregate_id => ?::text, event_type => ?::text,
                payload => ?::text::jsonb, headers => ?::text::jsonb, lock => ?::boolean, id => ?::text::uuid)""";
    private static final SecureRandom RANDOM = new SecureRandom();

    private Outbox() {}

    /** Writes an event and returns its id. Pass the connection whose transaction changes what the event describes. */
    public static UUID emit(Connection connection, Event event) throws SQLException {
        check(event);
        var payload = encode(event);
        var headers = event.headers() == null || event.headers().isEmpty() ? null : Json.encode(event.headers());
        var id = event.id() == null ? newId() : event.id();
        if (connection.getAutoCommit()) {
            throw new IllegalStateException("emit got a connection that has begun no transaction: call"
                    + " setAutoCommit(false), or use the connection of a transaction");
        }
        try (var call = connection.prepareStatement(CALL)) {
            call.setString(1, event.aggregateType());
            call.setString(2, event.aggregateId());
            call.setString(3, event.type());
            call.setString(4, payload);
            call.setString(5, headers);
            call.setBoolean(6, event.lock());
            call.setString(7, id.toString());
            call.execute();
        }
        return id;
    }

    private static void check(Event event) {
        if (isEmpty(event.aggregateType()) || isEmpty(event.type())) {
            throw new IllegalArgumentException("emit: an event needs an aggregateType and a type");
        }
        if (event.aggregateId() == null) {
            throw new IllegalArgumentException("emit " + event.type() + ": aggregateId must not be null");
        }
    }

    private static boolean isEmpty(String text) {
        return text == null || text.isEmpty();
    }

    private static String encode(Event event) {
        if (event.payload() == null) {
            return null;
        }
        if (event.payload() instanceof byte[] || event.payload() instanceof java.nio.ByteBuffer) {
            throw new IllegalArgumentException("emit " + event.type() + ": the payload is bytes, which JSON can hold"
                    + " only as base64: pass a Map, or new Json(text)");
        }
        try {
            return Json.encode(event.payload());
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException("emit " + event.type() + ": " + e.getMessage(), e);
        }
    }

    /** Returns a uuid of version 7: nearly in the order of time, so that an index of them fills page by page. */
    public static UUID newId() {
        long random = RANDOM.nextLong();
        long high = System.currentTimeMillis() << 16 | 0x7000 | random >>> 52;
        long low = RANDOM.nextLong() >>> 2 | 1L << 63;
        return new UUID(high, low);
    }
}
