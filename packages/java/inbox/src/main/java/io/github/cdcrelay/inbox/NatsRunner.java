package io.github.cdcrelay.inbox;

import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Options;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Reads subjects of NATS JetStream with jnats and hands their messages to an inbox until it is stopped. A subject is
 * read in the stream's order from the position in the database, without a consumer on the server. So the stream must
 * keep what was read.
 */
public final class NatsRunner extends TopicsRunner {
    private static final long POLL = 50; // milliseconds, while there is no message
    private static final long WAIT = 500_000_000; // nanoseconds
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final int MOST_ASKED = 64; // messages that are asked for at once
    private static final int NO_MESSAGE = 10037; // the error's code

    private final Options options;

    /** As the other one, with 8 workers. */
    public NatsRunner(Inbox inbox, Collection<String> subjects, Options options) {
        this(inbox, subjects, options, 8);
    }

    /**
     * @param subjects without wildcards
     * @param options make a connection for each subject, which connects again until it is closed
     * @param workers how many handlers run at once. The inbox's pool needs two connections more
     */
    public NatsRunner(Inbox inbox, Collection<String> subjects, Options options, int workers) {
        super(inbox, subjects, false, workers);
        for (var name : subjects) {
            if (name.chars().anyMatch(c -> "*> \t\r\n".indexOf(c) >= 0)) {
                throw new IllegalArgumentException("inbox: the subject \"" + name + "\" has wildcards or blanks: name"
                        + " each subject");
            }
        }
        this.options = new Options.Builder(options).maxReconnects(-1).build();
    }

    @Override
    Topic open(String name) throws Exception {
        var connection = Nats.connect(options);
        try {
            return new Subject(name, connection);
        } catch (Exception e) {
            end(connection);
            throw e;
        }
    }

    private static void end(Connection connection) {
        try {
            connection.close();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static final class Subject implements Topic {
        private final String name;
        private final Connection connection;
        private final String stream;
        private long next = 1;
        private int asked = 1; // more while each answer is another message

        Subject(String name, Connection connection) throws Exception {
            this.name = name;
            this.connection = connection;
            if (!(ask("STREAM.NAMES", "{\"subject\": " + quoted(name) + "}").get("streams") instanceof List<?> names)
                    || names.isEmpty()) {
                throw new IllegalStateException("no stream takes the subject " + name);
            }
            stream = (String) names.get(0);
            var kept = fields(info(), "config").get("retention");
            if (!"limits".equals(kept)) {
                throw new IllegalStateException("stream " + stream + " of subject " + name + " has the retention "
                        + kept + ", and deletes messages that the inbox would need again: make a stream with the"
                        + " retention limits that has it as its source");
            }
        }

        @Override
        public Bounds bounds(long next) throws Exception {
            var info = info();
            var state = fields(info, "state");
            long first = Math.max((Long) state.get("first_seq"), 1);
            var latest = ask("STREAM.MSG.GET." + stream, "{\"last_by_subj\": " + quoted(name) + "}").get("message");
            long end = latest == null ? first : sequence(latest) + 1;
            var lost = 0 < next && next < first && end > next ? "stream " + stream + " deleted messages, of subject "
                    + name + " perhaps, before they were read, between " + next + " and " + (first - 1)
                    + ". Their effects are missing" : "";
            boolean alone = List.of(name).equals(fields(info, "config").get("subjects"));
            long unread = end <= next ? 0 : alone ? end - Math.max(next, first) : UNKNOWN;
            return new Bounds((String) info.get("created"), first, (Long) state.get("last_seq") + 1, unread, lost);
        }

        @Override
        public void seek(long next) {
            this.next = Math.max(next, 1);
        }

        @Override
        public List<Message> next() throws Exception {
            long until = System.nanoTime() + WAIT;
            var messages = new ArrayList<Message>();
            while (System.nanoTime() - until < 0) {
                int before = messages.size();
                boolean more = read(messages);
                if (messages.size() + MOST_ASKED > WINDOW || !more && !messages.isEmpty()) {
                    break;
                } else if (messages.size() == before) {
                    Thread.sleep(POLL);
                }
            }
            return messages;
        }

        /**
         * Asks for the first message from next on, from the one behind it on, and so forth, all at once, and reports
         * whether each is there. As sequences only grow, what the answers have until the first that has none is without
         * a gap.
         */
        private boolean read(List<Message> messages) throws Exception {
            var answers = new ArrayList<CompletableFuture<io.nats.client.Message>>();
            for (int i = 0; i < asked; i++) {
                answers.add(send("STREAM.MSG.GET." + stream,
                        "{\"seq\": " + (next + i) + ", \"next_by_subj\": " + quoted(name) + "}"));
            }
            int before = messages.size();
            boolean all = true;
            for (var answer : answers) {
                var message = answered("STREAM.MSG.GET", answer).get("message");
                all &= message != null;
                if (all && sequence(message) >= next) {
                    messages.add(message(name, message));
                    next = sequence(message) + 1;
                }
            }
            boolean dense = all && 2 * (messages.size() - before) >= asked;
            asked = dense ? Math.min(2 * asked, MOST_ASKED) : Math.max(asked / 2, 1);
            return all;
        }

        private Map<?, ?> info() throws Exception {
            return ask("STREAM.INFO." + stream, "");
        }

        private Map<?, ?> ask(String question, String json) throws Exception {
            return answered(question, send(question, json));
        }

        // Not the client's functions, which leave parts of times and headers out.
        private CompletableFuture<io.nats.client.Message> send(String question, String json) {
            return connection.request("$JS.API." + question, json.getBytes(StandardCharsets.UTF_8));
        }

        private static Map<?, ?> answered(String question, CompletableFuture<io.nats.client.Message> answer)
                throws Exception {
            var data = answer.get(ANSWER.toMillis(), TimeUnit.MILLISECONDS).getData();
            var found = (Map<?, ?>) Json.parse(Json.utf8(data));
            if (found.get("error") instanceof Map<?, ?> error && ((Long) error.get("err_code")) != NO_MESSAGE) {
                throw new IOException(question + " of NATS: " + error.get("description"));
            }
            return found;
        }

        @Override
        public void close() {
            end(connection);
        }
    }

    private static Map<?, ?> fields(Map<?, ?> of, String name) {
        return (Map<?, ?>) of.get(name);
    }

    private static long sequence(Object message) {
        return (Long) ((Map<?, ?>) message).get("seq");
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    private static byte[] decoded(Object base64) {
        return base64 == null ? new byte[0] : Base64.getDecoder().decode((String) base64);
    }

    /** Undoes what the relay does to make a message. */
    private static Message message(String topic, Object raw) {
        var fields = (Map<?, ?>) raw;
        var headers = new LinkedHashMap<String, String>();
        byte[] key = null;
        byte[] value = decoded(fields.get("data"));
        var lines = new String(decoded(fields.get("hdrs")), StandardCharsets.UTF_8).split("\r\n");
        for (int i = 1; i < lines.length; i++) { // behind the version
            int colon = lines[i].indexOf(':');
            var name = colon < 0 ? "Nats-" : lines[i].substring(0, colon);
            var text = lines[i].substring(colon + 1).strip();
            if (name.equals("x-outbox-key")) {
                key = text.getBytes(StandardCharsets.UTF_8);
            } else if (name.equals("x-outbox-key-base64")) {
                key = decoded(text);
            } else if (name.equals("x-outbox-tombstone")) {
                value = null;
            } else if (!name.startsWith("Nats-")) {
                headers.put(name, text);
            }
        }
        return new Message(topic, 0, sequence(raw), key, value, headers);
    }
}
