package io.github.cdcrelay.inbox;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.sql.CallableStatement;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.TimeUnit;

/** The connection as a handler gets it, and what the inbox sees of its use. */
final class Guard {
    private static final long MOST_QUIET = 5_000_000_000L; // nanoseconds
    private final Connection target;
    private final Connection proxy;
    // Written by the handler's thread.
    private volatile SQLException refused;
    private volatile boolean changed;
    private volatile boolean altered;
    private int running; // calls of the target; guarded by this
    private boolean ended; // guarded by this

    Guard(Connection target) {
        this.target = target;
        proxy = wrap(Connection.class, (self, method, args) -> onConnection(method, args));
    }

    Connection connection() {
        return proxy;
    }

    /** Throws if the handler tried to end the transaction, also if it caught the error. */
    void check() throws SQLException {
        if (refused != null) {
            throw refused;
        }
    }

    /** Reports whether settings of the session may have changed, so that it must not be used again. */
    boolean changed() {
        return changed;
    }

    /** Reports whether settings may have changed, be it of the transaction only, so that no other event may be in it. */
    boolean altered() {
        return altered || changed;
    }

    /** Refuses all further calls: the handler may still run. */
    synchronized void end() {
        ended = true;
    }

    /** Waits until none of the handler's calls runs, for connections of pools are not safe for two threads. */
    synchronized void quiet() {
        long deadline = System.nanoTime() + MOST_QUIET;
        boolean interrupted = false;
        for (long left = MOST_QUIET; running > 0 && left > 0; left = deadline - System.nanoTime()) {
            try {
                TimeUnit.NANOSECONDS.timedWait(this, left);
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void begin() throws SQLException {
        if (ended) {
            throw new SQLException("the transaction of this event has ended", "25000");
        }
        running++;
    }

    private synchronized void done() {
        running--;
        notifyAll();
    }

    private Object onConnection(Method method, Object[] args) throws Throwable {
        var name = method.getName();
        switch (name) {
            case "close": // of a caller who believes that it is its own
                return null;
            case "commit", "abort":
                throw refuse(name + "()");
            case "rollback":
                if (args == null) {
                    throw refuse("rollback()");
                }
                break;
            case "setAutoCommit":
                if ((Boolean) args[0]) {
                    throw refuse("setAutoCommit(true)");
                }
                return null;
            case "setSavepoint":
                break;
            default:
                changed |= name.startsWith("set");
                if (name.startsWith("prepare")) {
                    see(args);
                }
        }
        var result = call(target, method, args);
        if (result instanceof CallableStatement s) {
            return statement(CallableStatement.class, s);
        } else if (result instanceof PreparedStatement s) {
            return statement(PreparedStatement.class, s);
        }
        return result instanceof Statement s ? statement(Statement.class, s) : result;
    }

    private <S extends Statement> S statement(Class<S> type, S statement) {
        return wrap(type, (self, method, args) -> {
            var name = method.getName();
            if (name.equals("getConnection")) {
                return proxy;
            }
            if (name.startsWith("execute") || name.equals("addBatch")) {
                see(args);
            }
            return call(statement, method, args);
        });
    }

    /** Refuses a text that ends the transaction. */
    private void see(Object[] args) throws SQLException {
        if (args == null || !(args[0] instanceof String sql)) {
            return;
        }
        switch (Statements.of(sql)) {
            case END -> throw refuse(sql.substring(0, Math.min(80, sql.length())));
            case SETTING -> changed = true;
            case LOCAL -> altered = true;
            case PLAIN -> { }
        }
    }

    private SQLException refuse(String what) {
        refused = new SQLException("the handler ran " + what + ": the inbox begins and ends the transaction", "2D000");
        return refused;
    }

    private Object call(Object on, Method method, Object[] args) throws Throwable {
        begin();
        try {
            return method.invoke(on, args);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        } finally {
            done();
        }
    }

    private static <T> T wrap(Class<T> type, java.lang.reflect.InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(Guard.class.getClassLoader(), new Class<?>[] {type},
                (self, method, args) -> method.getDeclaringClass() == Object.class ? ofObject(type, self, method, args)
                        : handler.invoke(self, method, args)));
    }

    /** Answers equals, hashCode and toString. */
    private static Object ofObject(Class<?> type, Object self, Method method, Object[] args) {
        return switch (method.getName()) {
            case "equals" -> self == args[0];
            case "hashCode" -> System.identityHashCode(self);
            default -> "the inbox's " + type.getSimpleName();
        };
    }
}
