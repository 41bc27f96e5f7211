import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.transaction.support.TransactionTemplate;

/** Ways to have a transaction. Each commits it at the end of the work, unless that throws. */
class Emitters {
    static final Map<String, Emitter> ALL = new LinkedHashMap<>();

    static {
        ALL.put("jdbc", Emitters::jdbc);
        ALL.put("spring", Emitters::spring);
    }

    interface Emitter {
        void run(Work work) throws SQLException;
    }

    interface Work {
        void run(Transaction tx) throws SQLException;
    }

    interface Transaction {
        void use(Step step) throws SQLException;
    }

    interface Step {
        void run(Connection connection) throws SQLException;
    }

    static void jdbc(Work work) throws SQLException {
        try (var connection = DriverManager.getConnection(Driver.URL)) {
            connection.setAutoCommit(false);
            work.run(step -> step.run(connection));
            connection.commit(); // else it is rolled back when it is closed
        }
    }

    static void spring(Work work) {
        var source = new DriverManagerDataSource(Driver.URL);
        var jdbcTemplate = new JdbcTemplate(source);
        new TransactionTemplate(new DataSourceTransactionManager(source)).executeWithoutResult(status -> {
            try {
                work.run(step -> jdbcTemplate.execute((Connection c) -> {
                    step.run(c);
                    return null;
                }));
            } catch (SQLException e) {
                throw new IllegalStateException(e);
            }
        });
    }
}
