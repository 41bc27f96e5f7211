package io.github.cdcrelay.spring;

import io.github.cdcrelay.emit.Event;
import io.github.cdcrelay.emit.Json;
import io.github.cdcrelay.emit.Outbox;
import java.nio.ByteBuffer;
import java.sql.SQLException;
import java.util.UUID;
import javax.sql.DataSource;
import org.springframework.jdbc.UncategorizedSQLException;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.jdbc.support.SQLStateSQLExceptionTranslator;
import org.springframework.transaction.IllegalTransactionStateException;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/** Writes events into the outbox, in the transaction of the thread: that of {@code @Transactional}, or of a handler. */
public final class OutboxEmitter {
    private final DataSource source;
    private final Payloads payloads;

    /**
     * @param source that of the transactions
     * @param payloads writes payloads. null: they are what {@link Event} takes
     */
    public OutboxEmitter(DataSource source, Payloads payloads) {
        this.source = source;
        this.payloads = payloads;
    }

    /** Writes an event whose payload is any object that {@link Payloads} writes, and returns its id. */
    public UUID emit(Event event) {
        var connection = DataSourceUtils.getConnection(source);
        try {
            if (!TransactionSynchronizationManager.isActualTransactionActive()
                    || !DataSourceUtils.isConnectionTransactional(connection, source)) {
                throw new IllegalTransactionStateException("emit " + event.type() + ": there is no transaction of the"
                        + " outbox's DataSource, so the event would not be part of what it describes: call emit in a"
                        + " method with @Transactional");
            }
            return Outbox.emit(connection, written(event));
        } catch (SQLException e) {
            var translated = new SQLStateSQLExceptionTranslator().translate("emit " + event.type(), null, e);
            throw translated != null ? translated : new UncategorizedSQLException("emit " + event.type(), null, e);
        } finally {
            DataSourceUtils.releaseConnection(connection, source);
        }
    }

    private Event written(Event event) {
        var payload = event.payload();
        boolean asItIs = payload == null || payload instanceof Json || payload instanceof byte[]
                || payload instanceof ByteBuffer; // emit refuses bytes
        if (payloads == null || asItIs) {
            return event;
        }
        try {
            return new Event(event.id(), event.aggregateType(), event.aggregateId(), event.type(),
                    new Json(payloads.write(payload)), event.headers(), event.lock());
        } catch (Exception e) {
            throw new IllegalArgumentException("emit " + event.type() + ": " + e.getMessage(), e);
        }
    }
}
