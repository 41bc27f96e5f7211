package io.github.cdcrelay.inbox;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import javax.sql.DataSource;
import org.postgresql.core.BaseConnection;
import org.postgresql.core.TransactionState;

/** A connection that the pool has lent, and the inbox's transaction on it. One thread uses it at a time. */
final class Session implements AutoCloseable {
    /** Goes before the first statement, in one message with it: whatever the database's defaults. */
    private static final String BEGIN = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; ";

    private final Connection connection;
    private final BaseConnection driver;
    private final boolean autoCommit;
    private boolean begun;
    private boolean discarded;
    int pid;

    Session(DataSource pool) throws SQLException {
        connection = pool.getConnection();
        try {
            driver = connection.unwrap(BaseConnection.class);
            autoCommit = connection.getAutoCommit();
            connection.setAutoCommit(false);
        } catch (SQLException e) {
            connection.close();
            throw e;
        }
    }

    Connection connection() {
        return connection;
    }

    List<Object[]> rows(String sql, Object... parameters) throws SQLException {
        try (var statement = connection.prepareStatement(begun ? sql : BEGIN + sql)) {
            begun = true;
            for (int i = 0; i < parameters.length; i++) {
                bind(statement, i + 1, parameters[i]);
            }
            boolean hasRows = statement.execute();
            while (!hasRows && statement.getUpdateCount() != -1) {
                hasRows = statement.getMoreResults();
            }
            return hasRows ? read(statement) : List.of();
        }
    }

    private void bind(PreparedStatement statement, int n, Object value) throws SQLException {
        if (value instanceof String[] list) {
            statement.setArray(n, connection.createArrayOf("text", list));
        } else if (value instanceof Integer[] list) {
            statement.setArray(n, connection.createArrayOf("int4", list));
        } else if (value instanceof Long[] list) {
            statement.setArray(n, connection.createArrayOf("int8", list));
        } else if (value instanceof byte[][] list) {
            statement.setArray(n, connection.createArrayOf("bytea", list));
        } else if (value instanceof Boolean[] list) {
            statement.setArray(n, connection.createArrayOf("bool", list));
        } else {
            statement.setObject(n, value);
        }
    }

    private static List<Object[]> read(PreparedStatement statement) throws SQLException {
        var rows = new ArrayList<Object[]>();
        try (var result = statement.getResultSet()) {
            while (result.next()) {
                var row = new Object[result.getMetaData().getColumnCount()];
                for (int i = 0; i < row.length; i++) {
                    row[i] = result.getObject(i + 1);
                }
                rows.add(row);
            }
        }
        return rows;
    }

    /** Looks at the transaction, whatever the handler returned. */
    void check(Guard guard) throws SQLException {
        guard.check();
        if (connection.isClosed()) {
            throw new SQLException("the handler lost its session", "08003");
        } else if (driver.getTransactionState() == TransactionState.FAILED) {
            throw new SQLException("a statement failed and the handler went on, so Postgres rolls back", "25P02");
        } else if (driver.getTransactionState() == TransactionState.IDLE) {
            throw new SQLException("the handler ended the transaction, which is the inbox's", "2D000");
        }
    }

    /** Commits. The driver has no error for what Postgres rolls back instead: after a handler, call check first. */
    void commit() throws SQLException {
        connection.commit();
        begun = false;
    }

    /** Rolls back, and reports whether the session was lost. The type of an error says nothing about that. */
    boolean rollBack() {
        begun = false;
        try {
            connection.rollback();
            return connection.isClosed();
        } catch (SQLException e) {
            boolean lost = isClosed();
            discard();
            return lost;
        }
    }

    private boolean isClosed() {
        try {
            return connection.isClosed();
        } catch (SQLException e) {
            return true;
        }
    }

    /** Ends the session without waiting for a statement that runs on it: past the pool, whose connection it may use. */
    void discard() {
        discarded = true;
        try {
            driver.abort(Runnable::run);
        } catch (SQLException e) {
            return; // it is closed
        }
    }

    /** Gives the connection back to the pool, which drops one that was discarded. */
    @Override
    public void close() {
        if (begun && !discarded) {
            rollBack();
        }
        try {
            if (!discarded) {
                connection.setAutoCommit(autoCommit);
            }
        } catch (SQLException e) {
            discard();
        }
        try {
            connection.close();
        } catch (SQLException e) {
            return; // it is gone
        }
    }
}
