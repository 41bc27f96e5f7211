import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.cdcrelay.emit.Event;
import io.github.cdcrelay.emit.Outbox;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/**
 * The contract's driver: commands as lines of JSON on standard input, one answer each on standard output. The judge is
 * test/packages in the product's Go tests; packages/contract/README.md lists the commands.
 */
class Driver {
    static final String URL = jdbc(URI.create(System.getenv("DATABASE_URL")));

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
                default -> throw new IllegalArgumentException("no command " + command.get("op"));
            };
        } catch (Exception e) {
            return answer("error", e.getClass().getSimpleName() + ": " + e.getMessage());
        }
    }

    static JsonObject open(JsonObject command) {
        var emitters = new JsonArray();
        emitters.add("jdbc");
        var answer = new JsonObject();
        answer.add("emitters", emitters);
        return answer;
    }

    static JsonObject emit(JsonObject command) {
        var ids = new ArrayList<UUID>();
        try (var connection = DriverManager.getConnection(URL)) {
            connection.setAutoCommit(false);
            for (var step : command.getAsJsonArray("steps")) {
                emit(connection, step.getAsJsonObject(), ids);
            }
            if (command.has("fails")) {
                connection.rollback();
                throw new IllegalStateException(command.get("fails").getAsString());
            }
            connection.commit();
        } catch (SQLException | RuntimeException e) {
            return answer("error", e.getMessage());
        }
        var answer = answer("count", ids.size());
        answer.addProperty("distinct", new HashSet<>(ids).size());
        return answer;
    }

    static void emit(Connection connection, JsonObject step, List<UUID> ids) throws SQLException {
        if (step.has("sql")) {
            try (var statement = connection.createStatement()) {
                statement.execute(step.get("sql").getAsString());
            }
            return;
        }
        var fields = step.getAsJsonObject("event");
        var event = Event.of(text(fields, "aggregateType"), text(fields, "aggregateId"), text(fields, "type"),
                payload(fields.get("payload")));
        if (fields.has("id")) {
            event = event.withId(UUID.fromString(text(fields, "id")));
        }
        if (fields.has("headers")) {
            event = event.withHeaders(texts(fields.getAsJsonObject("headers")));
        }
        if (fields.has("lock")) {
            event = event.withLock();
        }
        ids.add(Outbox.emit(connection, event));
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
        return plain.isBoolean() ? plain.getAsBoolean() : plain.isNumber() ? plain.getAsBigDecimal() : plain.getAsString();
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
        answer.add(name, value instanceof Number number ? new com.google.gson.JsonPrimitive(number)
                : new com.google.gson.JsonPrimitive(String.valueOf(value)));
        return answer;
    }

    static String jdbc(URI at) {
        var user = at.getUserInfo().split(":", 2);
        return "jdbc:postgresql://" + at.getHost() + ":" + at.getPort() + at.getPath() + "?user=" + user[0]
                + (user.length > 1 ? "&password=" + user[1] : "");
    }
}
