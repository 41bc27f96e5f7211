package io.github.cdcrelay.inbox;

import io.lettuce.core.Range;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads Redis Streams with Lettuce and hands their entries to an inbox until it is stopped. A stream is read in order
 * from the position in the database. There is no consumer group, because its members would break the order of keys, and
 * nothing is deleted: trim streams by age or length.
 */
public final class RedisRunner extends TopicsRunner {
    private static final Duration WAIT = Duration.ofMillis(500);
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final String RENAMED = "header:"; // before headers that have the names of fields
    private static final int SEQUENCE_BITS = 22; // of an offset, for the second part of an id, as in the journal

    private final RedisClient client;

    /** As the other one, with 8 workers. */
    public RedisRunner(Inbox inbox, Collection<String> streams, RedisClient client) {
        this(inbox, streams, client, 8);
    }

    /**
     * @param client makes a connection for each stream. The caller shuts it down
     * @param workers how many handlers run at once. The inbox's pool needs two connections more
     */
    public RedisRunner(Inbox inbox, Collection<String> streams, RedisClient client, int workers) {
        super(inbox, streams, false, workers);
        this.client = client;
    }

    @Override
    Topic open(String name) {
        var connection = client.connect(ByteArrayCodec.INSTANCE);
        connection.setTimeout(ANSWER);
        return new Stream(name, connection);
    }

    private static final class Stream implements Topic {
        private final String name;
        private final byte[] key;
        private final StatefulRedisConnection<byte[], byte[]> connection;
        private final RedisCommands<byte[], byte[]> redis;
        private long next;

        Stream(String name, StatefulRedisConnection<byte[], byte[]> connection) {
            this.name = name;
            this.key = name.getBytes(StandardCharsets.UTF_8);
            this.connection = connection;
            this.redis = connection.sync();
        }

        @Override
        public Bounds bounds(long next) {
            Map<String, Object> info;
            try {
                info = fields(redis.xinfoStream(key));
            } catch (RedisCommandExecutionException e) {
                if (!String.valueOf(e.getMessage()).contains("no such key")) {
                    throw e;
                }
                // Ids are times, so those of a stream that is created again lie behind.
                return new Bounds("", next, UNKNOWN, 0, next == 0 ? ""
                        : "stream " + name + " was deleted: whether all of it was read is unknown");
            }
            long last = offset(text(info.get("last-generated-id")));
            long first = info.get("first-entry") instanceof List<?> entry && !entry.isEmpty()
                    ? offset(text(entry.get(0))) : last + 1;
            long unread = next > last ? 0 : next <= first ? (Long) info.get("length") : UNKNOWN;
            boolean perhaps = first < next && next <= last || 0 < next && next < first;
            return new Bounds("", first, last + 1, unread, perhaps ? lost(next, info) : "");
        }

        /** What is trimmed goes from the front: while the last one that was read is there, nothing behind it was. */
        private String lost(long next, Map<String, Object> info) {
            var deleted = info.get("max-deleted-entry-id"); // neither is known before Redis 7
            if (deleted != null && offset(text(deleted)) == 0 && info.get("length").equals(info.get("entries-added"))) {
                return "";
            }
            var range = Range.create(id(next - 1), id(next - 1));
            if (!redis.xrange(key, range).isEmpty() && (deleted == null || offset(text(deleted)) < next)) {
                return "";
            }
            return "stream " + name + " may have lost entries behind " + id(next - 1) + " before they were read: it was"
                    + " trimmed, or entries were deleted. Their effects would be missing";
        }

        @Override
        public void seek(long next) {
            this.next = next;
        }

        @Override
        public List<Message> next() {
            var after = XReadArgs.StreamOffset.from(key, id(Math.max(next - 1, 0)));
            @SuppressWarnings("unchecked") // the array of one
            var read = redis.xread(XReadArgs.Builder.block(WAIT).count(WINDOW), after);
            var messages = read.stream().map(this::message).toList();
            next = messages.isEmpty() ? next : messages.get(messages.size() - 1).offset() + 1;
            return messages;
        }

        /** Undoes what the relay does to make an entry. */
        private Message message(StreamMessage<byte[], byte[]> entry) {
            var headers = new LinkedHashMap<String, String>();
            byte[] messageKey = null;
            byte[] value = null;
            for (var field : entry.getBody().entrySet()) {
                var fieldName = text(field.getKey());
                switch (fieldName) {
                    case "key" -> messageKey = field.getValue();
                    case "payload" -> value = field.getValue();
                    case "x-outbox-tombstone" -> { }
                    default -> headers.put(
                            fieldName.startsWith(RENAMED) ? fieldName.substring(RENAMED.length()) : fieldName,
                            text(field.getValue()));
                }
            }
            return new Message(name, 0, offset(entry.getId()), messageKey, value, headers);
        }

        @Override
        public void close() {
            connection.close();
        }
    }

    /** Returns names and values that alternate in an answer. */
    private static Map<String, Object> fields(List<Object> answer) {
        var fields = new HashMap<String, Object>();
        for (int i = 0; i + 1 < answer.size(); i += 2) {
            fields.put(text(answer.get(i)), answer.get(i + 1));
        }
        return fields;
    }

    private static String text(Object value) {
        return value instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(value);
    }

    private static long offset(String id) {
        var parts = id.split("-", 2);
        long milliseconds = Long.parseLong(parts[0]);
        long sequence = parts.length < 2 ? 0 : Long.parseLong(parts[1]);
        if (sequence >> SEQUENCE_BITS != 0 || milliseconds >> (Long.SIZE - 1 - SEQUENCE_BITS) != 0) {
            throw new IllegalArgumentException("the id " + id + " does not fit into an offset");
        }
        return milliseconds << SEQUENCE_BITS | sequence;
    }

    private static String id(long offset) {
        return (offset >> SEQUENCE_BITS) + "-" + (offset & (1L << SEQUENCE_BITS) - 1);
    }
}
