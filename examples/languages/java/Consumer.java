import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/**
 * Handles each event once, in its key's order, with JDBC. Messages come as lines on standard input, their fields apart
 * by tabs: put your Kafka client's loop there, and commit its offset behind what was handled.
 */
class Consumer {
    static final String NAME = "billing";
    static final int MAX_ATTEMPTS = 5;

    record Message(String id, String topic, int partition, long offset, String key, String payload) {}

    static void effect(Connection c, String key, String payload) throws Exception {
        if (payload.contains("\"fails\"")) throw new IllegalStateException("no such customer");
        try (var s = c.prepareStatement("INSERT INTO invoice (customer, seq) VALUES (?, (?::jsonb ->> 'seq')::int)")) {
            s.setString(1, key);
            s.setString(2, payload);
            s.execute();
        }
    }

    /** Decides a message: it has had its effect, or is parked, when this returns. */
    static void handle(Connection c, Message m) throws SQLException {
        try {
            String state;
            try (var s = c.prepareStatement("SELECT inbox_claim(?, ?, ?, ?, ?)")) {
                s.setString(1, NAME);
                s.setString(2, m.id);
                s.setString(3, m.topic);
                s.setInt(4, m.partition);
                s.setBytes(5, m.key.getBytes(StandardCharsets.UTF_8));
                var rows = s.executeQuery();
                rows.next();
                state = rows.getString(1);
            }
            if (state.equals("new")) effect(c, m.key, m.payload);
            if (state.equals("behind")) park(c, m, "", null); // no time: it waits for the one before it
            commit(c);
        } catch (Exception e) { // the event's fault, whatever it is; without a session the rollback fails, and it comes again
            c.rollback();
            park(c, m, String.valueOf(e.getMessage()), 0.05);
            c.commit();
        }
    }

    static void park(Connection c, Message m, String error, Double seconds) throws SQLException {
        try (var s = c.prepareStatement("SELECT inbox_park(?, ?, topic => ?, partition => ?, \"offset\" => ?, key => ?,"
                + " value => ?, error => ?, next_at => now() + ?::float8 * interval '1 second')")) {
            s.setString(1, NAME);
            s.setString(2, m.id);
            s.setString(3, m.topic);
            s.setInt(4, m.partition);
            s.setLong(5, m.offset);
            s.setBytes(6, m.key.getBytes(StandardCharsets.UTF_8));
            s.setBytes(7, m.payload.getBytes(StandardCharsets.UTF_8));
            s.setString(8, error);
            s.setObject(9, seconds, java.sql.Types.DOUBLE);
            s.execute();
        }
    }

    /** Tries a parked event whose time has come, and returns whether there was one. */
    static boolean retry(Connection c) throws SQLException {
        String id, key, payload;
        int attempts;
        try (var s = c.prepareStatement("SELECT id, key, value, attempts FROM inbox_take(?)")) {
            s.setString(1, NAME);
            var rows = s.executeQuery();
            if (!rows.next()) {
                c.commit();
                return false;
            }
            id = rows.getString(1);
            key = new String(rows.getBytes(2), StandardCharsets.UTF_8);
            payload = new String(rows.getBytes(3), StandardCharsets.UTF_8);
            attempts = rows.getInt(4);
        }
        try {
            effect(c, key, payload);
            try (var s = c.prepareStatement("SELECT inbox_done(?, ?)")) {
                s.setString(1, NAME);
                s.setString(2, id);
                s.execute();
            }
            commit(c);
        } catch (Exception e) {
            c.rollback();
            var sql = "SELECT inbox_failed(?, ?, ?, now() + ?::float8 * interval '1 second')";
            try (var s = c.prepareStatement(sql)) {
                s.setString(1, NAME);
                s.setString(2, id);
                s.setString(3, String.valueOf(e.getMessage()));
                s.setObject(4, attempts + 1 < MAX_ATTEMPTS ? 0.05 : null, java.sql.Types.DOUBLE); // null: a dead letter
                s.execute();
            }
            c.commit();
        }
        return true;
    }

    /** Commits. The query fails if a statement failed and the handler went on: commit alone rolls back silently. */
    static void commit(Connection c) throws SQLException {
        try (var s = c.createStatement()) {
            s.execute("SELECT 1");
        }
        c.commit();
    }

    static boolean waits(Connection c) throws SQLException {
        try (var s = c.createStatement(); var rows = s.executeQuery("SELECT FROM inbox_parked LIMIT 1")) {
            return rows.next();
        } finally {
            c.commit();
        }
    }

    public static void main(String[] args) throws Exception {
        try (var c = DriverManager.getConnection(System.getenv("JDBC_URL"));
                var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            c.setAutoCommit(false);
            for (String line; (line = lines.readLine()) != null; ) {
                var f = line.split("\t", 6);
                handle(c, new Message(f[0], f[1], Integer.parseInt(f[2]), Long.parseLong(f[3]), f[4], f[5]));
                while (retry(c)) { }
            }
            while (waits(c)) { // one that goes on looks now and then
                if (!retry(c)) Thread.sleep(10);
            }
        }
    }
}
