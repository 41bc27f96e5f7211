import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Message;
import io.github.cdcrelay.testing.MemoryInbox;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
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
