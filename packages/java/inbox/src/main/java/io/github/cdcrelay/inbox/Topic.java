package io.github.cdcrelay.inbox;

import java.io.IOException;
import java.util.List;

/** An open topic of a {@link TopicsRunner}. One thread calls it. After an error it is closed. */
interface Topic extends AutoCloseable {
    long UNKNOWN = -1;

    /**
     * How a topic stands, by its broker, for one who has read what is below an offset.
     *
     * @param id tells the topic from another one of its name. Empty if the broker does not
     * @param first the lowest offset that can be read
     * @param end if it is below what was read, it is another topic. UNKNOWN: the broker does not tell
     * @param unread messages; or UNKNOWN
     * @param lost what is said of messages that are gone before they were read. Empty: there are none
     */
    record Bounds(String id, long first, long end, long unread, String lost) {}

    Bounds bounds(long next) throws Exception;

    /** Begins to read. */
    void seek(long next) throws Exception;

    /** Waits half a second at most for messages in order, with offsets that grow. */
    List<Message> next() throws Exception;

    /** Notices, while handlers run, that the connection was lost. */
    default void beat() throws Exception {}

    /** Takes messages that are decided out of a queue. */
    default void settle() throws Exception {}

    @Override
    void close() throws IOException;
}
