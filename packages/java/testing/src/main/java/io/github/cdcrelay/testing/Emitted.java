package io.github.cdcrelay.testing;

import java.sql.Connection;
import java.sql.SQLException;

/** For tests of code that emits events, with any test runner. The connection's role must see table outbox_events. */
public final class Emitted {
    private static final String EVENTS = "SELECT coalesce(string_agg(left(event_type || ' ' || aggregate_id || ' ' "
            + "|| coalesce(payload::text, 'tombstone'), 200), ', ' ORDER BY id), 'nothing') FROM outbox_events "
            + "WHERE ?::text IS NULL OR event_type = ?";
    private static final String FOUND = "SELECT EXISTS (SELECT FROM outbox_events o WHERE event_type = ? AND "
            + "(?::text IS NULL OR aggregate_id = ?) AND NOT EXISTS (SELECT FROM jsonb_each(?::text::jsonb) m "
            + "WHERE o.payload -> m.key IS DISTINCT FROM m.value))";

    private Emitted() {}

    /** Throws unless the outbox, as the transaction sees it, has an event of the type. */
    public static void assertEmitted(Connection tx, String type) throws SQLException {
        assertEmitted(tx, type, null, "{}");
    }

    /**
     * Throws unless the outbox, as the transaction sees it, has such an event.
     *
     * @param key the aggregate's id. null: any
     * @param match an object of JSON with fields that the payload must have, with these values
     */
    public static void assertEmitted(Connection tx, String type, String key, String match) throws SQLException {
        if (!(Boolean) ask(tx, FOUND, type, key, key, match)) {
            throw new AssertionError("no event " + type + " of " + (key == null ? "any aggregate" : key) + " with "
                    + match + " was emitted; the outbox has " + ask(tx, EVENTS, null, null));
        }
    }

    /** Throws if the outbox, as the transaction sees it, has an event. */
    public static void noEventEmitted(Connection tx) throws SQLException {
        noEventEmitted(tx, null);
    }

    /** Throws if the outbox, as the transaction sees it, has an event of the type. */
    public static void noEventEmitted(Connection tx, String type) throws SQLException {
        var found = ask(tx, EVENTS, type, type);
        if (!found.equals("nothing")) {
            throw new AssertionError("no event should be emitted, but the outbox has " + found);
        }
    }

    private static Object ask(Connection tx, String sql, String... parameters) throws SQLException {
        try (var statement = tx.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) {
                statement.setString(i + 1, parameters[i]);
            }
            try (var rows = statement.executeQuery()) {
                rows.next();
                return rows.getObject(1);
            }
        }
    }
}
