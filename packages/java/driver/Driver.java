import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.github.cdcrelay.emit.Outbox;
import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Handler;
import io.github.cdcrelay.inbox.Inbox;
import io.github.cdcrelay.inbox.KafkaRunner;
import io.github.cdcrelay.inbox.Message;
import io.github.cdcrelay.inbox.MicrometerMetrics;
import io.github.cdcrelay.inbox.Options;
import io.github.cdcrelay.inbox.Outage;
import io.github.cdcrelay.inbox.Outcome;
import io.github.cdcrelay.inbox.Permanent;
import io.github.cdcrelay.inbox.RetryAfter;
import io.github.cdcrelay.testing.Emitted;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.atomic.AtomicInteger;
import javax.sql.DataSource;

/**
 * The contract's driver: commands as lines of JSON on standard input, one answer each on standard output. The judge is
 * test/packages in the product's Go tests; packages/contract/README.md lists the commands.
 */
class Driver {
    static final String URL = jdbc(URI.create(System.getenv("DATABASE_URL")));
    static HikariDataSource pool;
    static Inbox inbox;
    static AutoCloseable runner;
    static Loop loop;
    static PrometheusMeterRegistry registry;

    /** Ways to fail, by the name that a payload has in its field fails. */
    static final Map<String, Handler> FAILURES = new LinkedHashMap<>();

    static {
        FAILURES.put("error", (event, tx) -> { throw new IllegalStateException("no such customer"); });
        FAILURES.put("no error", (event, tx) -> { throw new AssertionError("no such customer"); });
        FAILURES.put("permanent", (event, tx) -> { throw new Permanent("never"); });
        FAILURES.put("outage", (event, tx) -> { throw new Outage("the bank is away"); });
        FAILURES.put("later", (event, tx) -> { throw new RetryAfter(Duration.ofMillis(30), "come back"); });
        FAILURES.put("like a lost connection", (event, tx) -> { throw new SQLException("connection reset", "08006"); });
        FAILURES.put("cancelled", (event, tx) -> {
            Thread.currentThread().interrupt();
            throw new CancellationException();
        });
        FAILURES.put("swallowed", (event, tx) -> swallow(tx, "SELECT 1 / 0"));
        FAILURES.put("unique", (event, tx) -> run(tx, "INSERT INTO once VALUES (1), (1)"));
        FAILURES.put("rollback", (event, tx) -> tx.rollback());
        FAILURES.put("rollback swallowed", (event, tx) -> swallow(tx, "ROLLBACK"));
        FAILURES.put("commit", (event, tx) -> {
            swallow(tx, "INSERT INTO scratch VALUES (1); COMMIT");
            run(tx, "INSERT INTO scratch VALUES (1)");
            tx.commit();
        });
        FAILURES.put("slow", (event, tx) -> Thread.sleep(60_000));
        FAILURES.put("slow statement", (event, tx) -> run(tx, "SELECT pg_sleep(60)"));
        FAILURES.put("ends its session", (event, tx) -> run(tx, "SELECT pg_terminate_backend(pg_backend_pid())"));
        FAILURES.put("setting", (event, tx) -> run(tx, "SET lock_timeout = '1ms'; SET search_path = nowhere, public"));
        FAILURES.put("setting of the transaction", (event, tx) -> run(tx, "SET LOCAL search_path = nowhere, public"));
        FAILURES.put("quoted", (event, tx) -> run(tx, """
                DO $x$ BEGIN PERFORM 1; END $x$;
                SELECT 'a''; COMMIT; b', E'\\'; COMMIT; c' AS "; ROLLBACK;", $$; COMMIT$$
                -- ; COMMIT
                /* ; COMMIT */"""));
        FAILURES.put("death", (event, tx) -> Runtime.getRuntime().halt(137));
    }

    static void run(Connection connection, String sql) throws SQLException {
        try (var statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    static void swallow(Connection connection, String sql) {
        try {
            run(connection, sql);
        } catch (SQLException e) {
            return;
        }
    }

    static void insert(Connection tx, String id, String key, Object n, int attempt, String json) throws SQLException {
        var sql = "INSERT INTO effect (id, key, n, attempt, length) VALUES (?, ?, ?, ?, ?)";
        try (var insert = tx.prepareStatement(sql)) {
            insert.setString(1, id);
            insert.setString(2, key);
            insert.setObject(3, n);
            insert.setInt(4, attempt);
            insert.setInt(5, json == null ? 0 : json.length());
            insert.execute();
        }
    }

    static void effect(Event event, Connection tx) throws Exception {
        var fields = event.fields();
        insert(tx, event.id(), event.key(), fields.get("n"), event.attempt(), event.json());
        var until = (Long) fields.getOrDefault("until", Long.MAX_VALUE);
        if (!fields.containsKey("fails") || event.attempt() > until || event.replay()) {
            return;
        }
        try (var statement = tx.createStatement(); var fixed = statement.executeQuery("SELECT FROM fixed")) {
            if (fixed.next()) {
                return;
            }
        }
        FAILURES.get(fields.get("fails")).handle(event, tx);
    }

    public static void main(String[] args) throws Exception {
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        try (var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line; (line = lines.readLine()) != null; ) {
                out.println(answer(JsonParser.parseString(line).getAsJsonObject()));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static JsonObject answer(JsonObject command) {
        try {
            return switch (command.get("op").getAsString()) {
                case "open" -> open(command);
                case "emit" -> emit(command);
                case "handle" -> handle(command.getAsJsonObject("message"));
                case "handleAll" -> handleAll(command.getAsJsonArray("messages"));
                case "retry" -> retry("idle".equals(text(command, "until")));
                case "run" -> run(command);
                case "loop" -> loop(command);
                case "kit" -> Kit.tell(command.getAsJsonArray("deliver"));
                case "sandbox" -> Kit.sandbox(text(command, "program"));
                case "metrics" -> answer("text", registry.scrape());
                case "stop" -> stop();
                default -> throw new IllegalArgumentException("no command " + command.get("op"));
            };
        } catch (Exception e) {
            return answer("error", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    static JsonObject open(JsonObject command) {
        if (pool != null) {
            pool.close();
        }
        var config = new HikariConfig();
        config.setJdbcUrl(URL);
        config.setMaximumPoolSize(6);
        config.setMinimumIdle(1);
        pool = new HikariDataSource(config);
        var asked = command.has("options") ? command.getAsJsonObject("options") : new JsonObject();
        var retry = asked.has("retry") ? asked.getAsJsonObject("retry") : new JsonObject();
        var options = new Options().attempts(number(retry, "attempts", 3)).backOff(
                Duration.ofMillis(number(retry, "initialMs", 20)), Duration.ofMillis(number(retry, "maxMs", 100)));
        options.handlerTimeout(Duration.ofMillis(number(asked, "handlerTimeoutMs", 30_000)));
        options.maxBatch(number(asked, "maxBatch", 100));
        if ("dead".equals(text(asked, "unknown"))) {
            options.deadIfUnknown();
        }
        MicrometerMetrics counted = null;
        if (command.has("metrics")) {
            registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
            counted = new MicrometerMetrics(registry);
            options.metrics(counted);
        }
        int dieAt = number(command, "dieAt", 0);
        inbox = new Inbox(dieAt == 0 ? pool : dying(pool, new AtomicInteger(dieAt)), "billing", options);
        inbox.on("Effect", Driver::effect);
        if (counted != null) {
            counted.watch(inbox);
        }
        var emitters = new JsonArray();
        Emitters.ALL.keySet().forEach(emitters::add);
        var answer = new JsonObject();
        answer.add("emitters", emitters);
        return answer;
    }

    /** Ends the process before the nth message to a server. */
    static DataSource dying(DataSource pool, AtomicInteger left) {
        return watched(DataSource.class, pool, left);
    }

    static <T> T watched(Class<T> type, T target, AtomicInteger left) {
        var loader = Driver.class.getClassLoader();
        return type.cast(Proxy.newProxyInstance(loader, new Class<?>[] {type}, (self, method, args) -> {
            boolean sends = method.getName().matches("execute.*|commit|rollback");
            if (sends && left.decrementAndGet() == 0) {
                Runtime.getRuntime().halt(137);
            }
            try {
                var result = method.invoke(target, args);
                boolean sender = result instanceof Connection || result instanceof Statement;
                return sender ? watch(method.getReturnType(), result, left) : result;
            } catch (InvocationTargetException e) {
                throw e.getCause();
            }
        }));
    }

    static <T> T watch(Class<T> type, Object target, AtomicInteger left) {
        return type == Object.class ? type.cast(target) : watched(type, type.cast(target), left);
    }

    static JsonObject handle(JsonObject m) {
        boolean careful = m.has("careful") && m.get("careful").getAsBoolean();
        var message = received(m);
        return answer("outcome", word(careful ? inbox.handleSuspect(message) : inbox.handle(message)));
    }

    static JsonObject handleAll(JsonArray messages) {
        var all = messages.asList().stream().map(m -> received(m.getAsJsonObject())).toList();
        return answer("outcomes", String.join(" ", inbox.handleAll(all).stream().map(Driver::word).toList()));
    }

    static Message received(JsonObject m) {
        byte[] value = null;
        if (m.has("hex")) {
            value = HexFormat.of().parseHex(text(m, "hex"));
        } else if (m.has("size")) {
            var fill = "x".repeat(m.get("size").getAsInt());
            value = ("{\"n\": " + fill.length() + ", \"fill\": \"" + fill + "\"}").getBytes(StandardCharsets.UTF_8);
        } else if (m.has("value") && !m.get("value").isJsonNull()) {
            value = m.get("value").toString().getBytes(StandardCharsets.UTF_8);
        }
        var headers = new JsonObject();
        headers.addProperty("event_type", "Effect");
        headers.addProperty("id", text(m, "id"));
        if (m.has("headers")) {
            m.getAsJsonObject("headers").asMap().forEach(headers::add);
        }
        var key = text(m, "key");
        return new Message(text(m, "topic"), m.get("partition").getAsInt(), m.get("offset").getAsLong(),
                key == null ? null : key.getBytes(StandardCharsets.UTF_8), value, texts(headers));
    }

    static String word(Outcome outcome) {
        return outcome.name().toLowerCase(java.util.Locale.ROOT);
    }

    static JsonObject retry(boolean untilIdle) throws Exception {
        var outcomes = new ArrayList<String>();
        while (true) {
            var outcome = inbox.retryDue();
            if (outcome != null) {
                outcomes.add(word(outcome));
            } else if (!untilIdle && waiting()) {
                Thread.sleep(5);
            } else {
                return answer("outcomes", String.join(" ", outcomes));
            }
        }
    }

    static boolean waiting() throws SQLException {
        try (var connection = pool.getConnection(); var statement = connection.createStatement();
                var rows = statement.executeQuery("SELECT FROM inbox_parked LIMIT 1")) {
            return rows.next();
        }
    }

    static JsonObject run(JsonObject command) throws Exception {
        var topics = list(command, "topics");
        int workers = number(command, "workers", 4);
        if (command.has("broker")) {
            runner = Brokers.runner(text(command, "broker"), text(command, "url"), topics, workers);
        } else {
            var reader = new KafkaRunner(inbox, topics, config(command), workers);
            runner = reader;
            new Thread(reader).start();
        }
        return new JsonObject();
    }

    static JsonObject loop(JsonObject command) {
        loop = new Loop(config(command), list(command, "topics"), number(command, "workers", 4));
        loop.start();
        return new JsonObject();
    }

    static Map<String, Object> config(JsonObject command) {
        return Map.of("bootstrap.servers", list(command, "brokers"), "group.id", text(command, "group"),
                "session.timeout.ms", 6000, "heartbeat.interval.ms", 500);
    }

    static JsonObject stop() throws Exception {
        if (runner != null) {
            runner.close();
        }
        if (loop != null) {
            loop.interrupt();
            loop.join();
        }
        pool.close();
        return new JsonObject();
    }

    static JsonObject emit(JsonObject command) {
        var ids = new ArrayList<UUID>();
        var emitter = text(command, "with") == null ? "jdbc" : text(command, "with");
        try {
            Emitters.ALL.get(emitter).run(tx -> {
                for (var step : command.getAsJsonArray("steps")) {
                    tx.use(connection -> emit(connection, step.getAsJsonObject(), ids));
                }
                if (command.has("fails")) {
                    throw new IllegalStateException(text(command, "fails"));
                }
            });
        } catch (SQLException | RuntimeException e) {
            return answer("error", e.getMessage());
        }
        var answer = answer("count", ids.size());
        answer.addProperty("distinct", new HashSet<>(ids).size());
        return answer;
    }

    static void emit(Connection connection, JsonObject step, List<UUID> ids) throws SQLException {
        if (step.has("sql")) {
            run(connection, text(step, "sql"));
            return;
        }
        var fields = step.getAsJsonObject("event");
        var event = io.github.cdcrelay.emit.Event.of(text(fields, "aggregateType"), text(fields, "aggregateId"),
                text(fields, "type"), payload(fields.get("payload")));
        if (fields.has("id")) {
            event = event.withId(UUID.fromString(text(fields, "id")));
        }
        if (fields.has("headers")) {
            event = event.withHeaders(texts(fields.getAsJsonObject("headers")));
        }
        if (fields.has("lock")) {
            event = event.withLock();
        }
        Emitted.noEventEmitted(connection, event.type());
        ids.add(Outbox.emit(connection, event));
        Emitted.assertEmitted(connection, event.type(), event.aggregateId(),
                fields.get("payload").isJsonObject() ? fields.get("payload").toString() : "{}");
        refused(() -> Emitted.assertEmitted(connection, "None"));
        refused(() -> Emitted.assertEmitted(connection, text(fields, "type"), null, "{\"none\": 1}"));
        refused(() -> Emitted.noEventEmitted(connection));
    }

    interface Check {
        void run() throws SQLException;
    }

    /** Sees that an assertion fails. */
    static void refused(Check check) throws SQLException {
        try {
            check.run();
        } catch (AssertionError e) {
            return;
        }
        throw new IllegalStateException("an assertion that is wrong was held");
    }

    /** Returns plain values, and bytes for an object that has them. */
    static Object payload(JsonElement json) {
        if (json.isJsonArray()) {
            return json.getAsJsonArray().asList().stream().map(Driver::payload).toArray();
        } else if (json.isJsonObject()) {
            var map = new LinkedHashMap<String, Object>();
            json.getAsJsonObject().asMap().forEach((name, value) -> map.put(name, payload(value)));
            return map.get("bytes") instanceof String text ? text.getBytes(StandardCharsets.UTF_8) : map;
        } else if (json.isJsonNull()) {
            return null;
        }
        var plain = json.getAsJsonPrimitive();
        if (plain.isBoolean()) {
            return plain.getAsBoolean();
        }
        return plain.isNumber() ? plain.getAsBigDecimal() : plain.getAsString();
    }

    static List<String> list(JsonObject fields, String name) {
        return fields.getAsJsonArray(name).asList().stream().map(JsonElement::getAsString).toList();
    }

    static int number(JsonObject fields, String name, int otherwise) {
        return fields.has(name) ? fields.get(name).getAsInt() : otherwise;
    }

    static String text(JsonObject fields, String name) {
        return !fields.has(name) || fields.get(name).isJsonNull() ? null : fields.get(name).getAsString();
    }

    /** Returns a map of texts. One that is null is left out. */
    static Map<String, String> texts(JsonObject fields) {
        var map = new LinkedHashMap<String, String>();
        for (var name : fields.keySet()) {
            if (text(fields, name) != null) {
                map.put(name, text(fields, name));
            }
        }
        return map;
    }

    static JsonObject answer(String name, Object value) {
        var answer = new JsonObject();
        answer.add(name, value instanceof Number n ? new JsonPrimitive(n) : new JsonPrimitive(String.valueOf(value)));
        return answer;
    }

    static String jdbc(URI at) {
        var user = at.getUserInfo().split(":", 2);
        return "jdbc:postgresql://" + at.getHost() + ":" + at.getPort() + at.getPath() + "?user=" + user[0]
                + (user.length > 1 ? "&password=" + user[1] : "");
    }
}
