package io.github.cdcrelay.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * Runs cdc-relay-demo sandbox: a Postgres with an outbox, and a relay that hands over its messages, for tests from the
 * commit to the message. The database is empty but for the outbox, the relay's tables and the function emit.
 */
public final class Sandbox implements AutoCloseable {
    private static final String PROGRAM = "cdc-relay-demo";
    private static final int STOPPING = 30; // seconds
    private static final Pattern ADDRESS = Pattern.compile("\"postgres_url\": *\"([^\"]+)\"");
    // The database reads the lines, so that no library is needed for it.
    private static final String FITS = """
            SELECT m->>'topic', m->>'key', m->'value' FROM unnest(?::text[]) WITH ORDINALITY AS l (line, n),
                LATERAL (SELECT l.line::jsonb AS m) j
            WHERE EXISTS (SELECT FROM jsonb_array_elements(m->'headers') h
                    WHERE h->>'key' = 'event_type' AND h->>'value' = ?)
                AND (?::text IS NULL OR m->>'key' = ?) AND NOT EXISTS (SELECT FROM jsonb_each(?::text::jsonb) e
                    WHERE m->'value'->e.key IS DISTINCT FROM e.value)
            ORDER BY l.n LIMIT 1""";

    private final Process process;
    private final String url;
    private final Thread reader;
    private final List<String> lines = new ArrayList<>(); // guarded by itself
    private boolean ended; // guarded by lines

    /**
     * A message of the relay.
     *
     * @param value JSON. null: a tombstone
     */
    public record Published(String topic, String key, String value) {}

    private Sandbox(Process process, BufferedReader out, String url) {
        this.process = process;
        this.url = url;
        reader = new Thread(() -> read(out), "sandbox");
        reader.setDaemon(true);
        reader.start();
    }

    /** Starts the program that is in PATH. */
    public static Sandbox start() throws IOException {
        return start(PROGRAM);
    }

    /** Starts the program with this path. */
    public static Sandbox start(String program) throws IOException {
        var process = new ProcessBuilder(program, "sandbox").redirectError(ProcessBuilder.Redirect.INHERIT).start();
        var out = process.inputReader(StandardCharsets.UTF_8);
        var line = out.readLine();
        var address = ADDRESS.matcher(line == null ? "" : line);
        if (!address.find()) {
            process.destroyForcibly();
            throw new IOException(program + " has ended; standard error tells why");
        }
        return new Sandbox(process, out, jdbc(URI.create(address.group(1))));
    }

    private static String jdbc(URI at) {
        var login = at.getUserInfo().split(":", 2);
        return "jdbc:postgresql://" + at.getHost() + ":" + at.getPort() + at.getPath() + "?user=" + encoded(login[0])
                + (login.length < 2 ? "" : "&password=" + encoded(login[1]));
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    /** Of the database, for JDBC. */
    public String url() {
        return url;
    }

    /** Opens a connection. */
    public Connection connect() throws SQLException {
        return DriverManager.getConnection(url);
    }

    private void read(BufferedReader out) {
        try (out) {
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                synchronized (lines) {
                    lines.add(line);
                    lines.notifyAll();
                }
            }
        } catch (IOException e) {
            // The process has ended.
        }
        synchronized (lines) {
            ended = true;
            lines.notifyAll();
        }
    }

    /** Waits for a message of the type, for 30 s at most. */
    public Published published(String type) throws SQLException, InterruptedException {
        return published(type, null, "{}", Duration.ofSeconds(30));
    }

    /**
     * Waits for a message and returns the first that fits. Throws AssertionError after the timeout.
     *
     * @param key the aggregate's id. null: any
     * @param match an object of JSON with fields that the value must have, with these values
     */
    public Published published(String type, String key, String match, Duration timeout)
            throws SQLException, InterruptedException {
        long until = System.nanoTime() + timeout.toNanos();
        try (var connection = connect()) {
            for (int seen = -1;;) {
                boolean last;
                List<String> some;
                synchronized (lines) {
                    while (lines.size() == seen && !ended && System.nanoTime() - until < 0) {
                        TimeUnit.NANOSECONDS.timedWait(lines, Math.max(until - System.nanoTime(), 1));
                    }
                    last = ended || System.nanoTime() - until >= 0;
                    some = List.copyOf(lines);
                }
                seen = some.size();
                var found = find(connection, some, type, key, match);
                if (found != null) {
                    return found;
                } else if (last) {
                    throw new AssertionError("no message " + type + " of " + (key == null ? "any aggregate" : key)
                            + " with " + match + " was published; there are " + some);
                }
            }
        }
    }

    private static Published find(Connection connection, List<String> some, String type, String key, String match)
            throws SQLException {
        try (var statement = connection.prepareStatement(FITS)) {
            statement.setArray(1, connection.createArrayOf("text", some.toArray()));
            statement.setString(2, type);
            statement.setString(3, key);
            statement.setString(4, key);
            statement.setString(5, match);
            try (var rows = statement.executeQuery()) {
                return rows.next() ? new Published(rows.getString(1), rows.getString(2), rows.getString(3)) : null;
            }
        }
    }

    /** Stops relay and Postgres. */
    @Override
    public void close() throws IOException {
        process.getOutputStream().close();
        try {
            if (!process.waitFor(STOPPING, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
            reader.join(TimeUnit.SECONDS.toMillis(STOPPING));
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
