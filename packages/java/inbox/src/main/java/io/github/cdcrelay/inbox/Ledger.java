package io.github.cdcrelay.inbox;

import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import javax.sql.DataSource;

/** The inbox's tables, by the functions that {@code cdc-relay init --inbox} creates. It never runs a handler. */
final class Ledger {
    private final DataSource pool;
    final String name;
    private final String schema;
    private volatile Boolean unicode;
    private volatile Known known;
    private volatile Last last;
    /** Grows whenever offsets are read again. */
    private volatile int epoch;

    Ledger(DataSource pool, String name, String schema) {
        this.pool = pool;
        this.name = name;
        this.schema = "\"" + schema.replace("\"", "\"\"") + "\".";
    }

    /** What the caller has read of a partition in an epoch: the database has no less, or it was restored. */
    record Since(int epoch, long wrote) {}

    /** How far a partition is. */
    record Place(String topic, int partition, long next, long wrote) {}

    /** A parked event that is due, with the attempts that it had. */
    record Taken(Read read, int attempts) {}

    /** How far a partition is, and whether the process that had it last did not release it. */
    record Start(long next, boolean unclean) {}

    /** How often earlier processes began an event: among others, and alone. */
    record Suspicion(int seen, int alone) {}

    private record Known(int consumer, String started, String file) {}

    /** What this process committed last, as the tables have it. anyState: others may change the event's state. */
    private record Last(String id, String source, boolean anyState) {}

    private interface Work<T> {
        T run() throws SQLException;
    }

    private interface SessionWork<T> {
        T run(Session session) throws SQLException;
    }

    /** Turns errors of Postgres into those of the inbox. */
    private static <T> T answering(String what, Work<T> work) {
        try {
            return work.run();
        } catch (SQLException e) {
            if ("IB001".equals(e.getSQLState())) {
                throw new SetBack(e.getMessage());
            }
            throw new Unavailable(what + ": " + e.getMessage(), e);
        }
    }

    int epoch() {
        return epoch;
    }

    Session connect() {
        return answering("connect", () -> new Session(pool));
    }

    void commit(Session session) {
        answering("commit", () -> {
            session.commit();
            return null;
        });
    }

    private <T> T transaction(String what, SessionWork<T> work) {
        try (var session = connect()) {
            return answering(what, () -> {
                var result = work.run(session);
                session.commit();
                return result;
            });
        }
    }

    /** Runs a statement in a transaction of its own. {s} in it is the schema. */
    List<Object[]> ask(String what, String sql, Object... parameters) {
        return transaction(what, session -> rows(session, sql, parameters));
    }

    private List<Object[]> rows(Session session, String sql, Object... parameters) throws SQLException {
        return session.rows(sql.replace("{s}", schema), parameters);
    }

    /** Claims an event in the session's transaction. SetBack: it is not the database that was read before. */
    String claim(Session session, Read r, Since since) {
        return answering("claim an event", () -> {
            var m = r.message;
            var row = look(session, r, since, ", {s}inbox_claim(?, ?, ?, ?, ?, ?), pg_backend_pid()", name, r.id,
                    m.topic(), m.partition(), m.key(), r.source);
            session.pid = (Integer) row[2];
            return (String) row[1];
        });
    }

    /**
     * Claims events in the session's transaction, in their order. Returns the indexes of those that the caller has the
     * effects of: the others are decided or behind. With since all are of one partition; SetBack as claim.
     */
    List<Integer> claimTogether(Session session, List<Read> reads, Since since) {
        return answering("claim events", () -> {
            int n = reads.size();
            var ids = new String[n];
            var topics = new String[n];
            var partitions = new Integer[n];
            var keys = new byte[n][];
            var sources = new String[n];
            for (int i = 0; i < n; i++) {
                var r = reads.get(i);
                ids[i] = r.id;
                topics[i] = r.message.topic();
                partitions[i] = r.message.partition();
                keys[i] = r.message.key();
                sources[i] = r.source;
            }
            var row = look(session, reads.get(0), since,
                    ", array_to_string({s}inbox_claim_together(?, ?, ?, ?, ?, ?), ' '), pg_backend_pid()",
                    name, ids, topics, partitions, keys, sources);
            session.pid = (Integer) row[2];
            var places = new ArrayList<Integer>();
            for (var place : ((String) row[1]).split(" ")) {
                if (!place.isEmpty()) {
                    places.add(Integer.parseInt(place) - 1);
                }
            }
            return places;
        });
    }

    /** Looks at the database, and returns what else the statement has. SetBack: it is another one than before. */
    private Object[] look(Session session, Read r, Since since, String expressions, Object... parameters)
            throws SQLException {
        var k = known;
        var l = last;
        if (since == null || k == null) {
            return rows(session, "SELECT NULL" + expressions, parameters).get(0);
        }
        if (since.epoch != epoch) { // it grows before known changes
            throw new SetBack("the offsets were read again");
        }
        var all = new ArrayList<Object>();
        Collections.<Object>addAll(all, k.consumer, name, k.started, k.file,
                l == null ? new String[0] : new String[] {l.source}, l == null ? new String[0] : new String[] {l.id},
                l == null ? new Boolean[0] : new Boolean[] {l.anyState}, r.message.topic(), r.message.partition(),
                since.wrote);
        all.addAll(Arrays.asList(parameters)); // behind the look, which must not see what they enter
        return rows(session, """
                SELECT {s}inbox_same(?::smallint, ?, ?::timestamptz, ?,
                    ARRAY(SELECT CASE WHEN u IS NULL THEN 0
                        ELSE coalesce((SELECT s.source FROM {s}inbox_source s WHERE s.name = u), -1) END
                        FROM unnest(?::text[]) u)::smallint[], ?::text[], ?::boolean[], ARRAY[?::text], ARRAY[?::integer], ARRAY[?::bigint])"""
                + expressions, all.toArray()).get(0);
    }

    /** Notes what this process has committed. */
    void committed(Read r, boolean anyState) {
        last = new Last(r.stored(), r.storedSource(), anyState);
    }

    /** Begins an epoch: from here on the database is the one that is there now. */
    synchronized void begin() {
        epoch++;
        var row = ask("read the identity of the database",
                "SELECT {s}inbox_register(?), pg_postmaster_start_time()::text, {s}inbox_file()", name).get(0);
        known = new Known((Integer) row[0], (String) row[1], (String) row[2]);
        last = null;
    }

    /** Takes a parked event that is due. null: none is. */
    Taken take(Session session) {
        return answering("take a parked event", () -> {
            var found = rows(session, """
                    SELECT id, source_name, topic, partition, "offset", key, value, headers::text, type, attempts,
                        pg_backend_pid() FROM {s}inbox_take(?)""", name);
            if (found.isEmpty()) {
                return null;
            }
            var row = found.get(0);
            Function<String, String> original = isUnicode(session) ? text -> text : Escapes::undo;
            var message = new Message((String) row[2], (Integer) row[3], (Long) row[4], (byte[]) row[5],
                    (byte[]) row[6], headers((String) row[7], original));
            session.pid = (Integer) row[10];
            return new Taken(new Read(message, (String) row[0], (String) row[1], original.apply((String) row[8])),
                    (Integer) row[9]);
        });
    }

    private static Map<String, String> headers(String json, Function<String, String> original) throws SQLException {
        var headers = new LinkedHashMap<String, String>();
        try {
            for (var entry : Json.members(json).entrySet()) {
                headers.put(original.apply(entry.getKey()), original.apply((String) Json.parse(entry.getValue())));
            }
        } catch (Json.Malformed e) {
            throw new SQLException("headers of a parked event: " + e.getMessage(), e);
        }
        return headers;
    }

    /** Parks an event. A delay of null: it waits for another one of its key. */
    boolean park(Session session, Read r, int attempts, String error, Double delay) {
        return answering("park an event", () -> {
            var m = r.message;
            var fit = fit(session);
            var names = m.headers().keySet().stream().map(fit).toArray(String[]::new);
            var values = m.headers().values().stream().map(fit).toArray(String[]::new);
            return (Boolean) rows(session, """
                    SELECT {s}inbox_park(?, ?, topic => ?, partition => ?, "offset" => ?, key => ?, value => ?,
                        headers => jsonb_object(?::text[], ?::text[]), type => ?, error => ?, attempts => ?,
                        next_at => now() + ?::float8 * interval '1 second', source_name => ?)""",
                    name, r.id, m.topic(), m.partition(), m.offset(), m.key(), m.value(), names, values,
                    fit.apply(r.type), fit.apply(error), attempts, delay, r.source).get(0)[0];
        });
    }

    /** Parks an event whose effect was rolled back. false: someone else has decided it. */
    boolean parkFailed(Read r, int attempts, String error, double delay, Since since) {
        return transaction("park an event", session -> {
            look(session, r, since, "");
            return park(session, r, attempts, error, delay);
        });
    }

    /** Notes a failed attempt of a parked event. A delay of null makes it a dead letter. */
    private boolean failed(Session session, Read r, String error, Double delay) throws SQLException {
        return (Boolean) rows(session, "SELECT {s}inbox_failed(?, ?, ?, now() + ?::float8 * interval '1 second', ?)",
                name, r.id, fit(session).apply(error), delay, r.source).get(0)[0];
    }

    boolean retryLater(Read r, String error, double delay) {
        return transaction("note a failed attempt", session -> failed(session, r, error, delay));
    }

    /** Lets a parked event wait without counting an attempt. */
    void await(Read r, String error, double delay) {
        transaction("let an event wait", session -> rows(session, """
                UPDATE {s}inbox_parked p SET next_at = now() + ?::float8 * interval '1 second', error = ?
                FROM {s}inbox_identity(?, ?) i
                WHERE p.consumer = {s}inbox_register(?) AND p.source = i.source AND p.event_id = i.event_id""",
                delay, fit(session).apply(error), r.id, r.source, name));
    }

    /** Makes an event a dead letter, parked or not. false: someone else has decided it. */
    boolean bury(Read r, boolean parked, String error, String kind, Since since) {
        return transaction("store a dead letter", session -> {
            look(session, r, since, "");
            if (!parked && !park(session, r, 0, error, 0.0) || !failed(session, r, error, null)) {
                return false;
            }
            rows(session, """
                    UPDATE {s}inbox_dead d SET class = ? FROM {s}inbox_identity(?, ?) i
                    WHERE d.consumer = {s}inbox_register(?) AND d.source = i.source AND d.event_id = i.event_id""",
                    kind, r.id, r.source, name);
            acquit(session, r);
            return true;
        });
    }

    boolean done(Session session, Read r) throws SQLException {
        return (Boolean) rows(session, "SELECT {s}inbox_done(?, ?, ?)", name, r.id, r.source).get(0)[0];
    }

    Suspicion suspicion(Read r) {
        var found = ask("read suspects", """
                SELECT s.seen, s.alone FROM {s}inbox_suspect s
                JOIN {s}inbox_identity(?, ?) i ON s.source = i.source AND s.event_id = i.event_id
                WHERE s.consumer = {s}inbox_register(?)""", r.id, r.source, name);
        return found.isEmpty() ? new Suspicion(0, 0)
                : new Suspicion(((Number) found.get(0)[0]).intValue(), ((Number) found.get(0)[1]).intValue());
    }

    /** Notes, in a transaction of its own, that this process begins an event. */
    void suspect(Read r, boolean alone) {
        ask("note a suspect", """
                INSERT INTO {s}inbox_suspect AS s (consumer, source, event_id, seen, alone)
                SELECT {s}inbox_register(?), i.source, i.event_id, ?, ? FROM {s}inbox_identity(?, ?) i
                ON CONFLICT (consumer, source, event_id) DO UPDATE SET seen = s.seen + excluded.seen,
                alone = s.alone + excluded.alone""", name, alone ? 0 : 1, alone ? 1 : 0, r.id, r.source);
    }

    /** Forgets that an event was begun: it is decided, and the process lives. */
    void acquit(Read r) {
        transaction("forget a suspect", session -> acquit(session, r));
    }

    private List<Object[]> acquit(Session session, Read r) throws SQLException {
        return rows(session, """
                DELETE FROM {s}inbox_suspect s USING {s}inbox_identity(?, ?) i
                WHERE s.consumer = {s}inbox_register(?) AND s.source = i.source AND s.event_id = i.event_id""",
                r.id, r.source, name);
    }

    /** Ends a session whose handler exceeded its time, so that its locks are free. */
    void terminate(int pid) {
        ask("end a session", "SELECT pg_terminate_backend(?)", pid);
    }

    /** Enters this process, and returns how far a partition is. */
    Start start(String holder, String topic, int partition, long first) {
        var row = ask("read an offset", """
                WITH me AS (SELECT {s}inbox_register(?) AS c, ?::text AS topic, ?::integer AS partition,
                    ?::text AS holder),
                before AS (SELECT o.* FROM {s}inbox_offset o, me
                    WHERE o.consumer = me.c AND o.topic = me.topic AND o.partition = me.partition)
                INSERT INTO {s}inbox_offset AS o (consumer, topic, partition, topic_id, next_offset, holder)
                SELECT c, topic, partition, '', ?::bigint, holder FROM me
                ON CONFLICT (consumer, topic, partition) DO UPDATE SET holder = excluded.holder, at = now()
                RETURNING next_offset, (SELECT before.holder <> me.holder FROM before, me)""",
                name, topic, partition, holder, first).get(0);
        return new Start((Long) row[0], Boolean.TRUE.equals(row[1]));
    }

    /**
     * Writes how far partitions are, unless the database lacks events, which this process had decided: it was restored.
     * Returns how many it lacks. SetBack: a partition has less than this process wrote.
     */
    long note(List<Place> places, List<Read> events) {
        // In one statement, as a restore can come between two. One look by the primary key for each event: a plan for
        // all of them can read the whole table.
        var row = ask("note offsets", """
                WITH me AS (SELECT {s}inbox_register(?) AS c), mine AS (
                    SELECT * FROM unnest(?::text[], ?::integer[], ?::bigint[], ?::bigint[])
                    AS u (topic, partition, next, wrote)),
                lost AS MATERIALIZED (SELECT count(*) AS n FROM me, unnest(?::text[], ?::text[]) AS u (id, source)
                    WHERE (SELECT true FROM {s}inbox_event e WHERE e.consumer = me.c
                        AND e.source = CASE WHEN u.source IS NULL THEN 0
                            ELSE (SELECT n.source FROM {s}inbox_source n WHERE n.name = u.source) END
                        AND e.event_id = u.id LIMIT 1) IS NOT TRUE),
                moved AS (UPDATE {s}inbox_offset o SET next_offset = greatest(o.next_offset, u.next), at = now()
                    FROM mine u, me, lost WHERE o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
                    AND o.next_offset >= u.wrote AND u.next > o.next_offset AND lost.n = 0)
                SELECT lost.n, EXISTS (SELECT FROM me CROSS JOIN mine u LEFT JOIN {s}inbox_offset o
                    ON o.consumer = me.c AND o.topic = u.topic AND o.partition = u.partition
                    WHERE coalesce(o.next_offset, 0) < u.wrote) FROM lost""",
                name, places.stream().map(Place::topic).toArray(String[]::new),
                places.stream().map(Place::partition).toArray(Integer[]::new),
                places.stream().map(Place::next).toArray(Long[]::new),
                places.stream().map(Place::wrote).toArray(Long[]::new),
                events.stream().map(Read::stored).toArray(String[]::new),
                events.stream().map(Read::storedSource).toArray(String[]::new)).get(0);
        if ((Boolean) row[1]) {
            throw new SetBack("the database has a lower offset than this process wrote");
        }
        return (Long) row[0];
    }

    void release(String holder) {
        ask("release partitions", """
                UPDATE {s}inbox_offset SET holder = NULL
                WHERE consumer = {s}inbox_register(?) AND holder = ?""", name, holder);
    }

    void forget(double keep) {
        ask("forget ids", """
                SELECT {s}inbox_forget(?, ?::float8 * interval '1 second', pause => '30 s')
                FROM {s}inbox_register(?)""", name, keep, name);
    }

    record Counts(long parked, long keys, long dead) {}

    /** Counts for gauges. */
    Counts counts() {
        var row = ask("count", """
                SELECT (SELECT count(*) FROM {s}inbox_parked WHERE consumer = c),
                    (SELECT count(DISTINCT (topic, partition, lane)) FROM {s}inbox_parked WHERE consumer = c),
                    (SELECT count(*) FROM {s}inbox_dead WHERE consumer = c AND replayed_at IS NULL AND discarded_at IS NULL)
                FROM {s}inbox_register(?) c""", name).get(0);
        return new Counts((Long) row[0], (Long) row[1], (Long) row[2]);
    }

    /** Reports whether the database holds every character. Else those beyond ASCII are stored with escapes. */
    private boolean isUnicode(Session session) throws SQLException {
        if (unicode == null) {
            unicode = "UTF8".equals(rows(session, "SELECT current_setting('server_encoding')").get(0)[0]);
        }
        return unicode;
    }

    private Function<String, String> fit(Session session) throws SQLException {
        boolean all = isUnicode(session);
        return text -> {
            var whole = new String(text.replace("\0", "").getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
            return all ? whole : Escapes.escape(whole);
        };
    }
}
