package io.github.cdcrelay.inbox;

import java.sql.Connection;

/** Has an event's effect through the connection, and nowhere else: it runs again if the commit fails. */
@FunctionalInterface
public interface Handler {
    /** The inbox begins and ends the transaction. Whatever this throws is an attempt that failed. */
    void handle(Event event, Connection tx) throws Exception;
}
