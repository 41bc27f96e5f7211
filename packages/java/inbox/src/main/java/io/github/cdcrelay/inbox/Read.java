package io.github.cdcrelay.inbox;

import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;

/** A message with what the relay's headers or its envelope say. */
final class Read {
    private static final int LONGEST_ID = 2688; // bytes that an entry of the tables' keys holds
    private static final Pattern UUID = Pattern.compile("(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");

    final Message message;
    String id;
    String source;
    boolean isUuid; // its id, which is unique without its source
    String type;
    private String aggregateType;
    private String problem; // why it can't be handled
    private String opened; // the payload of an envelope

    /** Reads the relay's formats, plain, CloudEvents and envelope, and that of Debezium's outbox router. */
    Read(Message message) {
        this.message = message;
        id = first("id", "ce_id", "x-event-id");
        type = first("event_type", "ce_type", "eventType");
        aggregateType = first("aggregate_type", "ce_aggregatetype");
        source = first("x-outbox-source");
        var position = source.split("/", -1);
        if (position.length == 3) { // the timeline is left out, which changes in a failover
            source = position[0] + "/" + position[2];
        }
        if (id.isEmpty()) {
            open();
        }
        var unfit = isUnfit(id) ? id : isUnfit(source) ? source : null;
        if (!id.isEmpty() && unfit != null) {
            problem = "its id or source \"" + unfit.substring(0, Math.min(100, unfit.length())) + "\" is longer than "
                    + LONGEST_ID + " bytes or not text that Postgres can hold";
        }
        if (id.isEmpty() || unfit != null) { // its place is what tells it from others
            id = message.topic() + "/" + message.partition() + "/" + message.offset();
            source = "topic " + message.topic();
        }
        isUuid = UUID.matcher(id).matches();
        if (isUuid) {
            source = "";
        }
    }

    /** Makes what was parked under another identity. */
    Read(Message message, String id, String source, String type) {
        this(message);
        this.id = id;
        this.isUuid = UUID.matcher(id).matches();
        this.source = source;
        this.type = type;
    }

    /** Returns the id as the tables have it. */
    String stored() {
        return isUuid ? id.toLowerCase(Locale.ROOT) : id;
    }

    /** Returns the name of the source that the tables have beside the id. null: none, as for all uuids. */
    String storedSource() {
        return isUuid ? null : source;
    }

    boolean isUnfit() {
        return problem != null;
    }

    /** The first of the headers that is there. */
    private String first(String... names) {
        for (var name : names) {
            if (message.headers().containsKey(name)) {
                return message.headers().get(name);
            }
        }
        return "";
    }

    private static boolean isUnfit(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length > LONGEST_ID || text.indexOf(0) >= 0
                || text.indexOf('\ufffd') >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(text);
    }

    /** Takes the payload out of an envelope, if the value is one. */
    private void open() {
        if (message.value() == null || message.value().length == 0 || message.value()[0] != '{') {
            return;
        }
        try {
            var envelope = Json.members(Json.utf8(message.value()));
            if (!envelope.containsKey("id") || !envelope.containsKey("payload")) {
                return;
            }
            id = text(envelope, "id");
            type = type.isEmpty() ? text(envelope, "type") : type;
            aggregateType = aggregateType.isEmpty() ? text(envelope, "aggregate_type") : aggregateType;
            opened = envelope.get("payload");
        } catch (Json.Malformed e) {
            return; // it was a guess
        }
    }

    private static String text(Map<String, String> envelope, String name) throws Json.Malformed {
        return envelope.containsKey(name) ? String.valueOf(Json.parse(envelope.get(name))) : "";
    }

    /** Returns the event for the handler. Permanent: the payload is not JSON. */
    Event event(int attempt) {
        if (problem != null) {
            throw new Permanent(problem);
        }
        var m = message;
        var key = m.key() == null ? null : new String(m.key(), StandardCharsets.UTF_8);
        try {
            var json = opened != null ? opened : m.value() == null ? null : Json.utf8(m.value());
            return new Event(id, source, type, aggregateType, key, json == null ? null : Json.parse(json), json,
                    m.headers(), m.topic(), m.partition(), m.offset(), attempt,
                    m.headers().containsKey("x-outbox-late"), m.headers().containsKey("x-outbox-replay"));
        } catch (Json.Malformed e) {
            throw new Permanent("the payload is not JSON: " + e.getMessage(), e);
        }
    }
}
