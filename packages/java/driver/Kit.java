import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.github.cdcrelay.emit.Outbox;
import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Message;
import io.github.cdcrelay.testing.MemoryInbox;
import io.github.cdcrelay.testing.Sandbox;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Hands messages to the inbox in memory. */
class Kit {
    private Kit() {}

    static JsonObject tell(JsonArray deliver) {
        var kit = new MemoryInbox(null, 3).on("Effect", Kit::failAsAsked);
        var outcomes = deliver.asList().stream().map(m -> kit.deliver(message(m.getAsJsonObject())))
                .map(Driver::word).toList();
        var retried = List.of(retry(kit), retry(kit));
        var answer = Driver.answer("outcomes", String.join(" ", outcomes));
        answer.addProperty("retried", String.join(", ", retried));
        answer.addProperty("dead", String.join(" ", kit.dead().stream().map(d -> id(d) + " " + d.error()).toList()));
        answer.addProperty("parked", kit.parked().size());
        return answer;
    }

    static JsonObject sandbox(String program) throws Exception {
        try (var sandbox = Sandbox.start(program)) {
            try (var connection = sandbox.connect()) {
                connection.setAutoCommit(false);
                for (int n = 0; n < 3; n++) {
                    Outbox.emit(connection, io.github.cdcrelay.emit.Event.of("order", "42", "OrderPlaced",
                            Map.of("n", n)));
                    if (n == 1) {
                        connection.rollback();
                    } else {
                        connection.commit();
                    }
                }
            }
            var second = sandbox.published("OrderPlaced", "42", "{\"n\": 2}", Duration.ofSeconds(30));
            var first = sandbox.published("OrderPlaced");
            try {
                sandbox.published("OrderPlaced", null, "{\"n\": 1}", Duration.ofMillis(100));
                throw new IllegalStateException("a message of a transaction that was rolled back");
            } catch (AssertionError e) {
                return Driver.answer("published", shown(first) + ", " + shown(second));
            }
        }
    }

    private static String shown(Sandbox.Published m) {
        return m.topic() + " " + m.key() + " " + m.value().replaceAll("\\D", "");
    }

    private static String id(MemoryInbox.Failed failed) {
        return failed.message().headers().get("id");
    }

    private static String retry(MemoryInbox kit) {
        return String.join(" ", kit.retry().stream().map(Driver::word).toList());
    }

    private static Message message(JsonObject m) {
        JsonElement value = m.get("value");
        var type = m.has("type") ? Driver.text(m, "type") : "Effect";
        return new Message("test", 0, 0, Driver.text(m, "key").getBytes(StandardCharsets.UTF_8),
                value == null ? null : value.toString().getBytes(StandardCharsets.UTF_8),
                Map.of("id", Driver.text(m, "id"), "event_type", type));
    }

    private static void failAsAsked(Event event, Connection tx) throws Exception {
        var fields = event.fields();
        if (fields.containsKey("fails") && event.attempt() <= (Long) fields.getOrDefault("until", Long.MAX_VALUE)) {
            Driver.FAILURES.get(fields.get("fails")).handle(event, tx);
        }
    }
}
