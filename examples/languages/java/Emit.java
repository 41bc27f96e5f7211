import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

/**
 * Places an order and emits its event in one transaction, with JDBC; ORDER names it. With FAIL set it fails behind that,
 * and neither is there.
 */
class Emit {
    static String place(Connection c, String order, long cents) throws SQLException {
        c.setAutoCommit(false);
        try {
            try (var s = c.prepareStatement("SELECT set_config('outbox.traceparent', ?, true)")) {
                s.setString(1, System.getenv("TRACEPARENT"));
                s.execute();
            }
            try (var s = c.prepareStatement("INSERT INTO orders (id, cents) VALUES (?, ?)")) {
                s.setString(1, order);
                s.setLong(2, cents);
                s.execute();
            }
            String id;
            try (var s = c.prepareStatement("SELECT emit(?, ?, ?, ?::jsonb, lock => true)")) {
                s.setString(1, "order");
                s.setString(2, order);
                s.setString(3, "OrderPlaced");
                s.setString(4, "{\"cents\": " + cents + "}");
                try (var rows = s.executeQuery()) {
                    rows.next();
                    id = rows.getString(1);
                }
            }
            if (System.getenv("FAIL") != null) throw new IllegalStateException("no such customer");
            c.commit();
            return id;
        } catch (SQLException | RuntimeException e) {
            c.rollback();
            throw e;
        }
    }

    public static void main(String[] args) throws SQLException {
        try (var c = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            System.out.println(place(c, System.getenv("ORDER"), 9990));
        }
    }
}
