package io.github.cdcrelay.testing;

import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Handler;
import io.github.cdcrelay.inbox.Message;
import io.github.cdcrelay.inbox.Outage;
import io.github.cdcrelay.inbox.Outcome;
import io.github.cdcrelay.inbox.Permanent;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;

/**
 * An inbox in memory, for tests of handlers with any test runner: each id once, a failing event and what follows of its
 * key wait, dead letters after some attempts. Nothing is rolled back when a handler fails. One thread uses it.
 */
public final class MemoryInbox {
    private static final int ATTEMPTS = 5;

    private final Connection tx;
    private final int attempts;
    private final Map<String, Handler> handlers = new HashMap<>();
    private final Set<String> seen = new HashSet<>();
    private final List<Waiting> parked = new ArrayList<>();
    private final List<Failed> dead = new ArrayList<>();
    private long offset;

    private static final class Waiting {
        final Message message;
        int attempt; // that it had last
        String error = "";

        Waiting(Message message) {
            this.message = message;
        }
    }

    /** A message that is parked or a dead letter, the attempts that it had, and why. */
    public record Failed(Message message, int attempts, String error) {}

    /** @param tx what handlers get; null is for those that don't use it */
    public MemoryInbox(Connection tx) {
        this(tx, ATTEMPTS);
    }

    /** @param attempts after how many an event is a dead letter */
    public MemoryInbox(Connection tx, int attempts) {
        this.tx = tx;
        this.attempts = attempts;
    }

    /** Registers the handler of a type of event. */
    public MemoryInbox on(String type, Handler handler) {
        handlers.put(type, handler);
        return this;
    }

    /** Hands in an event. json is its payload, null for a tombstone; without a key it has no order. */
    public Outcome deliver(String type, String key, String json) {
        return deliver(new Message("test", 0, offset++, bytes(key), bytes(json),
                Map.of("id", UUID.randomUUID().toString(), "event_type", type)));
    }

    /** Hands in a message, in any format that an inbox reads. */
    public Outcome deliver(Message message) {
        if (!seen.add(identity(message))) {
            return Outcome.DUPLICATE;
        }
        var waiting = new Waiting(message);
        boolean isBehind = message.key() != null
                && parked.stream().anyMatch(p -> Arrays.equals(p.message.key(), message.key()));
        var outcome = isBehind ? Outcome.PARKED : attempt(waiting);
        if (outcome == Outcome.PARKED) {
            parked.add(waiting);
        }
        return outcome;
    }

    /** Tries the first parked event of each key once, whether it is due or not. */
    public List<Outcome> retry() {
        var outcomes = new ArrayList<Outcome>();
        var keys = new HashSet<String>();
        for (var waiting : List.copyOf(parked)) {
            var key = waiting.message.key();
            if (key != null && !keys.add(new String(key, StandardCharsets.ISO_8859_1))) {
                continue;
            }
            var outcome = attempt(waiting);
            if (outcome != Outcome.PARKED) {
                parked.remove(waiting);
            }
            outcomes.add(outcome);
        }
        return outcomes;
    }

    /** Returns what waits, in order. */
    public List<Failed> parked() {
        return parked.stream().map(p -> new Failed(p.message, p.attempt, p.error)).toList();
    }

    /** Returns the dead letters, in order. */
    public List<Failed> dead() {
        return List.copyOf(dead);
    }

    private Outcome attempt(Waiting waiting) {
        try {
            var event = Event.of(waiting.message, waiting.attempt + 1);
            var handler = handlers.get(event.type());
            if (handler == null) {
                return Outcome.IGNORED;
            }
            handler.handle(event, tx);
            return Outcome.DONE;
        } catch (Outage e) {
            waiting.error = String.valueOf(e.getMessage());
            return Outcome.PARKED;
        } catch (Throwable e) { // as an inbox does
            waiting.attempt++;
            waiting.error = String.valueOf(e.getMessage());
            if (!(e instanceof Permanent) && waiting.attempt < attempts) {
                return Outcome.PARKED;
            }
            dead.add(new Failed(waiting.message, waiting.attempt, waiting.error));
            return Outcome.DEAD;
        }
    }

    private static String identity(Message message) {
        try {
            var event = Event.of(message, 1);
            return event.source() + "\0" + event.id();
        } catch (Permanent e) { // it can't be read
            var place = message.topic() + "/" + message.partition() + "/" + message.offset();
            return message.headers().getOrDefault("id", place);
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
