package io.github.cdcrelay.inbox;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Reads queues, streams or subjects and hands their messages to an inbox until it is stopped. One process reads each of
 * them at a time, with all its handlers; others stand by, and take over when it stops, or 5 s after it died.
 */
public abstract class TopicsRunner implements Runnable, AutoCloseable {
    /** Messages of a topic in flight, which a crash makes suspects. Topics return at most so many at once. */
    static final int WINDOW = 500;
    private static final System.Logger LOG = System.getLogger(TopicsRunner.class.getName());
    private static final long SECOND = 1_000_000_000L; // as all durations here in nanoseconds
    private static final long HOLD_EVERY = SECOND;
    private static final long LOOK_EVERY = 5 * SECOND;
    private static final long BEAT_EVERY = SECOND / 2;
    private static final long SHORTEST_PAUSE = SECOND / 20;
    private static final long LONGEST_PAUSE = 2 * SECOND;

    private final Inbox inbox;
    private final List<String> topics;
    private final boolean queue; // what is settled is gone, and offsets are numbers of this process. Else the broker's
    private final int workers;
    private final String holder = UUID.randomUUID().toString();
    private final Lease lease;
    private final Stop stop = new Stop();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final Object begin = new Object(); // held by the thread that begins an epoch
    private final Map<String, String> troubles = new ConcurrentHashMap<>();
    private volatile boolean started;

    /** A topic that this process has. Only its thread uses it, except for what is volatile. */
    private static final class Place {
        final String topic;
        final int epoch;
        final long carefulBelow;
        long next;
        volatile long wrote;
        volatile Throwable over; // why it is read no more
        String lost = "";
        long held = System.nanoTime() - HOLD_EVERY;
        long looked = System.nanoTime() - LOOK_EVERY;

        Place(String topic, int epoch, long next, long wrote, long carefulBelow) {
            this.topic = topic;
            this.epoch = epoch;
            this.next = next;
            this.wrote = wrote;
            this.carefulBelow = carefulBelow;
        }

        synchronized void end(Throwable cause) {
            over = over == null ? cause : over;
        }
    }

    /** Another process reads the topic. */
    private static final class Held extends RuntimeException {
        private static final long serialVersionUID = 1;

        Held(String message) {
            super(message);
        }
    }

    TopicsRunner(Inbox inbox, Collection<String> topics, boolean queue, int workers) {
        if (!inbox.hasHandlers()) {
            throw new IllegalArgumentException("inbox: there is no handler: call on first");
        }
        if (topics.isEmpty() || topics.stream().anyMatch(String::isEmpty) || workers < 1) {
            throw new IllegalArgumentException("inbox: name what to read, and at least one worker");
        }
        this.inbox = inbox;
        this.topics = List.copyOf(topics);
        this.queue = queue;
        this.workers = workers;
        this.lease = new Lease(inbox.ledger, holder);
    }

    abstract Topic open(String name) throws Exception;

    /** Returns why no events are handled. null: all is well, or another process reads. */
    public String trouble() {
        return troubles.values().stream().findFirst().orElse(null);
    }

    /** Stops reading. run returns when the handlers that run have ended. */
    public void stop() {
        stop.set();
    }

    /** Stops reading, and waits until run has returned. */
    @Override
    public void close() {
        stop();
        if (!started) {
            return;
        }
        try {
            ended.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reads and handles until stop, or until the thread is interrupted. */
    @Override
    public void run() {
        started = true;
        var pool = Executors.newFixedThreadPool(workers, work -> new Thread(work, "inbox worker"));
        var retries = new Thread(() -> new Retries(inbox, stop).run(), "inbox retries");
        var readers = topics.stream().map(name -> new Thread(() -> serve(name, pool), "inbox " + name)).toList();
        retries.start();
        readers.forEach(Thread::start);
        while (!stop.isSet() && !Thread.currentThread().isInterrupted()) {
            stop.sleep(SECOND);
        }
        stop.set();
        boolean interrupted = Thread.interrupted();
        try {
            for (var reader : readers) {
                reader.join();
            }
            retries.join();
            inbox.ledger.release(holder);
        } catch (InterruptedException e) {
            interrupted = true;
        } catch (Unavailable e) {
            LOG.log(System.Logger.Level.WARNING, "stop: {0}. The next process begins carefully", e.getMessage());
        } finally {
            pool.shutdown();
            ended.countDown();
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reads a topic whenever no other process does. */
    private void serve(String name, ExecutorService pool) {
        long pause = SHORTEST_PAUSE;
        boolean standingBy = false;
        while (!stop.isSet()) {
            long began = System.nanoTime();
            try {
                once(name, pool);
            } catch (Held e) {
                if (!standingBy) {
                    LOG.log(System.Logger.Level.INFO, "standing by: {0}", e.getMessage());
                }
                standingBy = true;
                pause = HOLD_EVERY;
                troubles.remove(name);
            } catch (Throwable e) { // also of a handler's or client's class that is missing
                pause = System.nanoTime() - began > LOOK_EVERY ? SHORTEST_PAUSE : pause;
                standingBy = false;
                troubled(name, e);
            }
            stop.sleep(pause);
            pause = Math.min(2 * pause, LONGEST_PAUSE);
        }
    }

    /** Takes a topic and reads it, until that is over. */
    private void once(String name, ExecutorService pool) throws Throwable {
        synchronized (begin) {
            if (inbox.ledger.epoch() == 0) {
                inbox.ledger.begin();
            }
        }
        if (lease.isHeld(name)) {
            throw new Held("another process reads " + name);
        }
        var topic = open(name);
        int epoch = inbox.ledger.epoch();
        try {
            read(take(name, topic, epoch), topic, pool);
        } catch (SetBack e) {
            LOG.log(System.Logger.Level.ERROR, "the database has less than this process committed: it was restored."
                    + " Reading again from its offsets");
            synchronized (begin) {
                if (epoch == inbox.ledger.epoch()) { // else another topic's thread has begun one
                    inbox.ledger.begin();
                }
            }
            throw e;
        } finally {
            close(topic);
        }
    }

    private static void close(Topic topic) {
        try {
            topic.close();
        } catch (Exception e) {
            LOG.log(System.Logger.Level.DEBUG, "close: {0}", e.getMessage());
        }
    }

    private Place take(String name, Topic topic, int epoch) throws Exception {
        var bounds = topic.bounds(0);
        var start = lease.take(name, bounds.id(), bounds.first());
        if (start == null) {
            throw new Held("another process reads " + name);
        }
        if (start.replaced() != null) {
            LOG.log(System.Logger.Level.ERROR, "{0} is not the one that was read up to {1}: it was deleted and created"
                    + " again. Reading it from its start", name, String.valueOf(start.replaced()));
        }
        long next = queue ? Math.max(start.next(), bounds.first()) : start.next();
        return new Place(name, epoch, next, start.next(), start.unclean() ? next + WINDOW : 0);
    }

    private void read(Place place, Topic topic, ExecutorService pool) throws Throwable {
        tick(place, topic);
        topic.seek(place.next);
        troubles.remove(place.topic);
        while (!stop.isSet()) {
            var messages = topic.next();
            if (!messages.isEmpty()) {
                window(place, topic, pool, messages);
            }
            tick(place, topic);
            if (place.over != null) {
                throw place.over;
            }
        }
    }

    /** Tells others that this process reads the topic, and asks how it stands. */
    private void tick(Place place, Topic topic) {
        long now = System.nanoTime();
        if (place.over != null) {
            return;
        }
        try {
            if (now - place.held >= HOLD_EVERY) {
                place.held = now;
                hold(place);
            }
            if (now - place.looked >= LOOK_EVERY) {
                place.looked = now;
                look(place, topic);
            }
        } catch (Exception e) {
            place.end(e);
        }
    }

    private void hold(Place place) {
        try {
            boolean mine = lease.hold(place.topic);
            if (!queue) { // it notices a restored database also while no messages come
                note(place, place.wrote, List.of());
            }
            if (!mine) {
                throw new Held("another process has taken " + place.topic + " over: this one did not answer in time");
            }
        } catch (Unavailable e) {
            LOG.log(System.Logger.Level.DEBUG, "{0}", e.getMessage()); // then no other process can take it, either
        }
    }

    private void look(Place place, Topic topic) throws Exception {
        var bounds = topic.bounds(place.next);
        if (bounds.end() != Topic.UNKNOWN && bounds.end() < place.next) {
            lease.rewind(place.topic, bounds.first());
            throw new IllegalStateException(place.topic + " ends at " + bounds.end() + ", and was read up to "
                    + place.next + ": it was deleted and created again, or set back. Reading it from its start");
        }
        if (!bounds.lost().isEmpty() && !bounds.lost().equals(place.lost)) {
            LOG.log(System.Logger.Level.ERROR, "{0}", bounds.lost());
        }
        place.lost = bounds.lost();
        if (bounds.unread() != Topic.UNKNOWN) {
            inbox.options.metrics.lag(place.topic, 0, bounds.unread());
        }
    }

    /** Decides messages, each key's in order, and writes how far that is. */
    private void window(Place place, Topic topic, ExecutorService pool, List<Message> messages) throws Exception {
        var reads = messages.stream().map(Read::new).toList();
        boolean careful = messages.get(0).offset() < place.carefulBelow;
        long next = messages.get(messages.size() - 1).offset() + 1;
        Long lacks;
        do {
            var lanes = new Lanes(reads);
            int threads = Math.min(workers, lanes.size());
            var running = new CountDownLatch(threads);
            for (int n = 0; n < threads; n++) {
                pool.execute(() -> {
                    try {
                        decide(place, lanes, careful);
                    } finally {
                        running.countDown();
                    }
                });
            }
            while (!running.await(BEAT_EVERY, TimeUnit.NANOSECONDS)) {
                tick(place, topic);
                beat(place, topic);
            }
            lacks = untilAvailable(place, () -> note(place, next, reads));
        } while (lacks != null && lacks > 0);
        if (isOver(place)) {
            return;
        }
        place.next = next;
        if (queue) {
            topic.settle();
        }
    }

    private static void beat(Place place, Topic topic) {
        try {
            topic.beat();
        } catch (Exception e) {
            place.end(e);
        }
    }

    /** Decides what waits, beside other threads. Errors end the place. */
    private void decide(Place place, Lanes lanes, boolean careful) {
        var since = queue ? null : new Ledger.Since(place.epoch, place.wrote);
        while (!isOver(place)) {
            var portion = untilAvailable(place, () -> lanes.take(careful ? 1 : inbox.pace.next()));
            if (portion == null || portion.reads().isEmpty()) {
                return;
            }
            var decided = untilAvailable(place, () -> inbox.together(portion.reads(), since));
            for (int i = 0; decided != null && i < decided.length; i++) {
                var r = portion.reads().get(i);
                if (decided[i] == null) {
                    untilAvailable(place, () -> inbox.handle(r, r.message.offset() < place.carefulBelow, since));
                }
            }
            lanes.giveBack(portion.rest());
        }
    }

    private boolean isOver(Place place) {
        return place.over != null || stop.isSet();
    }

    /** Writes how far a log is, and returns how many of the events, which were decided, the database lacks. */
    private long note(Place place, long next, List<Read> events) {
        var places = queue ? List.<Ledger.Place>of()
                : List.of(new Ledger.Place(place.topic, 0, next, place.wrote));
        long lacks = inbox.ledger.note(places, events);
        if (lacks == 0) {
            place.wrote = Math.max(place.wrote, next);
        }
        return lacks;
    }

    /** Runs work again while the database does not answer, until the place is over: null. */
    private <T> T untilAvailable(Place place, Supplier<T> work) {
        for (long pause = SHORTEST_PAUSE; !isOver(place); pause = Math.min(2 * pause, LONGEST_PAUSE)) {
            try {
                var result = work.get();
                troubles.remove(place.topic);
                return result;
            } catch (Unavailable e) {
                troubled(place.topic, e);
                stop.sleep(pause);
            } catch (Throwable e) {
                place.end(e);
            }
        }
        return null;
    }

    private void troubled(String name, Throwable e) {
        var text = text(e);
        if (!text.equals(troubles.put(name, text))) {
            LOG.log(System.Logger.Level.ERROR, "{0}: {1}", name, text);
        }
    }

    /** Returns the outermost message: clients wrap errors in those without one. */
    private static String text(Throwable e) {
        for (var cause = e; cause != null; cause = cause.getCause()) {
            if (cause.getMessage() != null) {
                return cause.getMessage();
            }
        }
        return e.getClass().getSimpleName();
    }
}
