package io.github.cdcrelay.inbox;

/**
 * Which process reads a topic that one process reads at a time, by the holder in the inbox's table of offsets. If two
 * read a topic all the same, the events' rows are the fence: each effect still happens once.
 */
final class Lease {
    private static final String LEASE = "5 s"; // that a process which died or is frozen keeps others away

    private final Ledger ledger;
    private final String holder;

    Lease(Ledger ledger, String holder) {
        this.ledger = ledger;
        this.holder = holder;
    }

    /**
     * Where a topic begins.
     *
     * @param unclean the process that had it last did not release it
     * @param replaced how far another topic of the name was. null: it is the same one
     */
    record Start(long next, boolean unclean, Long replaced) {}

    /** Reports whether another process has the topic, and has said so within the lease. */
    boolean isHeld(String topic) {
        return !ledger.ask("look who reads a topic", """
                SELECT true FROM {s}inbox_offset WHERE consumer = {s}inbox_register(?) AND topic = ? AND partition = 0
                AND holder <> ? AND at > now() - ?::interval""", ledger.name, topic, holder, LEASE).isEmpty();
    }

    /** Takes the topic. null: another process has it. One that the database does not know begins at first. */
    Start take(String topic, String id, long first) {
        var found = ledger.ask("take a topic", """
                WITH me AS (SELECT {s}inbox_register(?) AS c, ?::text AS topic, ?::text AS topic_id, ?::bigint AS first,
                    ?::text AS holder, ?::interval AS lease),
                before AS (SELECT o.* FROM {s}inbox_offset o JOIN me ON o.consumer = me.c AND o.topic = me.topic
                    WHERE o.partition = 0)
                INSERT INTO {s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
                SELECT c, topic, 0, topic_id, first, holder FROM me
                ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now(),
                    next_offset = CASE WHEN o.topic_id = excluded.topic_id THEN o.next_offset
                        ELSE excluded.next_offset END, topic_id = excluded.topic_id
                WHERE o.holder IS NULL OR o.holder = excluded.holder OR o.at < now() - (SELECT lease FROM me)
                RETURNING next_offset, (SELECT before.holder <> me.holder FROM before, me),
                    (SELECT b.next_offset FROM before b WHERE b.topic_id <> o.topic_id)""",
                ledger.name, topic, id, first, holder, LEASE);
        if (found.isEmpty()) {
            return null;
        }
        var row = found.get(0);
        return new Start((Long) row[0], Boolean.TRUE.equals(row[1]), (Long) row[2]);
    }

    /** Says that this process still reads the topic, and reports whether no other one has taken it. */
    boolean hold(String topic) {
        return !ledger.ask("hold a topic", """
                UPDATE {s}inbox_offset SET at = now() WHERE consumer = {s}inbox_register(?) AND topic = ?
                AND partition = 0 AND holder = ? RETURNING true""", ledger.name, topic, holder).isEmpty();
    }

    /** Sets the offset of a topic back that ends below it. */
    void rewind(String topic, long next) {
        ledger.ask("rewind a topic", "SELECT {s}inbox_rewind(?, ?, 0, ?)", ledger.name, topic, next);
    }
}
