package io.github.cdcrelay.inbox;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Supplier;
import javax.sql.DataSource;

/**
 * Decides events, each once: its effect, its place among the parked, or its dead letter commits together with its id.
 * Create its tables with {@code cdc-relay init --inbox}. Threads may use it at once. A handler runs only in the
 * transaction that has claimed its event, and bookkeeping never does.
 */
public final class Inbox {
    private static final System.Logger LOG = System.getLogger(Inbox.class.getName());
    private static final int MOST_LOSSES = 3; // sessions that an event may lose, before that is its handler's fault
    private static final double LONGEST_TOGETHER = 1; // seconds of handlers, before their events go by themselves
    private static final int MOST_ALONE = 2; // deaths of processes while it ran alone

    final Ledger ledger;
    final Options options;
    final String name;
    final Due due = new Due();
    final Pace pace;
    private final Map<String, Handler> handlers = new ConcurrentHashMap<>();
    /** Many run beside each other, or one alone, which goes before those who come later. */
    private final ReadWriteLock solitude = new ReentrantReadWriteLock(true);
    private final Map<String, Integer> losses = new ConcurrentHashMap<>();
    private final Set<String> noted = ConcurrentHashMap.newKeySet();
    private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
        var thread = new Thread(work, "inbox handler");
        thread.setDaemon(true);
        return thread;
    });

    public Inbox(DataSource pool, String name) {
        this(pool, name, new Options());
    }

    /**
     * @param pool must lend connections of the PostgreSQL driver, or those that unwrap to them. A thread that hands in
     *     events needs one, and another one for a moment when a handler fails
     * @param name the permanent name of this consumer
     */
    public Inbox(DataSource pool, String name, Options options) {
        options.validate(name);
        this.ledger = new Ledger(pool, name, options.schema);
        this.options = options;
        this.pace = new Pace(options.maxBatch);
        this.name = name;
    }

    /** Registers the handler of a type of event. */
    public Inbox on(String type, Handler handler) {
        if (type == null || type.isEmpty() || handler == null) {
            throw new IllegalArgumentException("inbox: on needs a type and a handler");
        }
        if (handlers.putIfAbsent(type, handler) != null) {
            throw new IllegalArgumentException("inbox: " + type + " has a handler already");
        }
        return this;
    }

    boolean hasHandlers() {
        return !handlers.isEmpty();
    }

    /**
     * Decides a message: when it returns, that is committed.
     *
     * @throws Unavailable if the database does not answer: hand the message in again
     */
    public Outcome handle(Message message) {
        return handle(new Read(message), false, null);
    }

    /** Decides messages in their order, as handle does: several in one transaction where that goes well. */
    public List<Outcome> handleAll(List<Message> messages) {
        var outcomes = new ArrayList<Outcome>();
        while (outcomes.size() < messages.size()) {
            int from = outcomes.size();
            var some = messages.subList(from, Math.min(messages.size(), from + pace.next())).stream().map(Read::new)
                    .toList();
            var decided = together(some, null);
            for (int i = 0; i < some.size(); i++) {
                outcomes.add(decided[i] != null ? decided[i] : handle(some.get(i), false, null));
            }
        }
        return outcomes;
    }

    /** As handle, for a message of which an earlier process may have died. */
    public Outcome handleSuspect(Message message) {
        return handle(new Read(message), true, null);
    }

    /** With since it throws SetBack if the database was restored. */
    Outcome handle(Read r, boolean careful, Ledger.Since since) {
        Outcome outcome = null;
        while (outcome == null) {
            outcome = guarded(r, careful, null, () -> claimed(r, since));
        }
        return counted(outcome, r);
    }

    /**
     * Decides messages in one transaction, as far as that goes well. null: hand that one in by itself, in this order.
     * With since, which is for messages of one partition, it throws SetBack if the database was restored.
     */
    Outcome[] together(List<Read> reads, Ledger.Since since) {
        if (reads.size() < 2 || reads.stream().anyMatch(
                r -> r.isUnfit() || options.deadIfUnknown && !handlers.containsKey(r.type))) {
            return new Outcome[reads.size()];
        }
        long began = System.nanoTime();
        try {
            var outcomes = beside(false, () -> claimedTogether(reads, since));
            pace.went(reads.size(), since(began));
            for (int i = 0; i < outcomes.length; i++) {
                counted(outcomes[i], reads.get(i));
            }
            return outcomes;
        } catch (Undone | Unavailable e) {
            LOG.log(System.Logger.Level.DEBUG, "{0} events go by themselves: {1} (of {2})", reads.size(), e.getMessage(),
                    name);
            pace.failed(reads.size());
            return new Outcome[reads.size()];
        }
    }

    private static double since(long began) {
        return (System.nanoTime() - began) / 1e9;
    }

    /** Claims events, and has the effects of those that are new, all or none. */
    private Outcome[] claimedTogether(List<Read> reads, Ledger.Since since) {
        var outcomes = new Outcome[reads.size()];
        Guard guard = null;
        boolean changed = false;
        try (var session = ledger.connect()) {
            try {
                var places = ledger.claimTogether(session, reads, since);
                long began = System.nanoTime();
                for (int place : places) {
                    if (guard != null && guard.altered()) {
                        throw new Undone("a handler changes settings, and other events are in its transaction");
                    } else if (since(began) > LONGEST_TOGETHER) {
                        throw new Undone("the handlers take too long for one transaction");
                    }
                    guard = new Guard(session.connection());
                    outcomes[place] = call(reads.get(place), 1, session, guard);
                    guard.end();
                    changed |= guard.changed();
                }
                session.commit();
                if (since != null && !places.isEmpty()) {
                    ledger.committed(reads.get(places.get(places.size() - 1)), false);
                }
                return outcomes;
            } catch (SetBack | Unavailable | Undone e) {
                throw e;
            } catch (Interrupted e) {
                throw interrupted(session, guard, e);
            } catch (Throwable cause) {
                rollBack(session, guard, cause);
                throw new Undone(String.valueOf(cause.getMessage()));
            } finally {
                if (guard != null) {
                    guard.end();
                }
                if (changed || guard != null && guard.changed()) {
                    session.discard();
                }
            }
        }
    }

    /** Events could not be had together. */
    private static final class Undone extends RuntimeException {
        private static final long serialVersionUID = 1;

        Undone(String why) {
            super(why);
        }
    }

    private static Unavailable interrupted(Session session, Guard guard, Interrupted e) {
        session.discard();
        guard.quiet();
        Thread.currentThread().interrupt();
        return new Unavailable("interrupted while a handler ran", e);
    }

    /** Tries a parked event whose time has come. null: none has. */
    public Outcome retryDue() {
        Outcome outcome = null;
        while (outcome == null) {
            try (var session = ledger.connect()) {
                var taken = ledger.take(session);
                if (taken == null) {
                    ledger.commit(session);
                    return null;
                }
                var run = new Run(taken.read(), taken.attempts() + 1, true, null);
                options.metrics.retried(label(run.r.type));
                outcome = guarded(run.r, true, session, () -> settled(run, effect(session, run)));
                counted(outcome, run.r);
            }
        }
        return outcome;
    }

    private record Run(Read r, int attempt, boolean parked, Ledger.Since since) {}

    /** How a run ended: an outcome, or the cause of a failure, and whether the session was lost. */
    private record Result(Outcome outcome, Throwable cause, boolean lost) {}

    private static final class TimedOut extends Exception {
        private static final long serialVersionUID = 1;

        TimedOut(double seconds) {
            super("the handler took more than " + seconds + " s");
        }
    }

    /** The thread that handed in an event was interrupted, not that of the handler. */
    private static final class Interrupted extends Exception {
        private static final long serialVersionUID = 1;
    }

    /**
     * Runs work beside others, or alone if processes died while they had the event. taken: the session that holds it.
     * null: try again.
     */
    private Outcome guarded(Read r, boolean careful, Session taken, Supplier<Outcome> work) {
        if (!careful) {
            return beside(false, work);
        }
        var key = r.source + "\0" + r.id;
        var before = noted.contains(key) ? new Ledger.Suspicion(0, 0) : ledger.suspicion(r);
        int deaths = before.seen() + before.alone();
        return beside(deaths > 0, () -> {
            if (before.alone() >= MOST_ALONE) {
                if (taken != null) {
                    taken.rollBack();
                }
                var error = "the process died " + deaths + " times while it handled this event";
                return ledger.bury(r, taken != null, error, "process", null) ? Outcome.DEAD : Outcome.DUPLICATE;
            }
            if (noted.add(key)) {
                note(r, key, deaths > 0);
            }
            var outcome = work.get();
            if (outcome != null) {
                forgive(r, key);
            }
            return outcome;
        });
    }

    private void note(Read r, String key, boolean alone) {
        try {
            ledger.suspect(r, alone);
        } catch (Unavailable e) {
            noted.remove(key);
            throw e;
        }
    }

    private void forgive(Read r, String key) {
        try {
            ledger.acquit(r);
        } catch (Unavailable e) {
            LOG.log(System.Logger.Level.WARNING, "{0} is handled alone next time: {1}", r.id, e.getMessage());
        }
        noted.remove(key);
    }

    private <T> T beside(boolean alone, Supplier<T> work) {
        var lock = alone ? solitude.writeLock() : solitude.readLock();
        lock.lock();
        try {
            return work.get();
        } finally {
            lock.unlock();
        }
    }

    /** Claims an event, has its effect, and decides what becomes of it. */
    private Outcome claimed(Read r, Ledger.Since since) {
        var run = new Run(r, 1, false, since);
        Result result;
        try (var session = ledger.connect()) {
            var state = ledger.claim(session, r, since);
            if (state.equals("new")) {
                result = effect(session, run);
            } else {
                boolean behind = state.equals("behind");
                if (behind) {
                    ledger.park(session, r, 0, "", null);
                }
                ledger.commit(session);
                if (behind && since != null) {
                    ledger.committed(r, true);
                }
                return behind ? Outcome.PARKED : Outcome.DUPLICATE;
            }
        }
        return settled(run, result);
    }

    /** Runs the handler in the session's transaction, and ends it. */
    private Result effect(Session session, Run run) {
        var r = run.r;
        var guard = new Guard(session.connection());
        try {
            var outcome = call(r, run.attempt, session, guard);
            if (run.parked && !ledger.done(session, r)) {
                throw new IllegalStateException("the event is not parked any more");
            }
            session.commit();
            losses.remove(r.id);
            if (run.since != null) {
                ledger.committed(r, false);
            }
            return new Result(outcome, null, false);
        } catch (Interrupted e) {
            throw interrupted(session, guard, e);
        } catch (Throwable cause) {
            return new Result(null, cause, rollBack(session, guard, cause));
        } finally {
            guard.end();
            if (guard.changed()) {
                session.discard();
            }
        }
    }

    /** Runs the handler of an event, if there is one, and looks at the transaction. */
    private Outcome call(Read r, int attempt, Session session, Guard guard) throws Throwable {
        long began = System.nanoTime();
        options.metrics.inflight(1);
        try {
            var handler = handlerOf(r);
            var event = r.event(attempt);
            if (handler == null) {
                return Outcome.IGNORED;
            }
            call(handler, event, guard);
            session.check(guard);
            return Outcome.DONE;
        } finally {
            options.metrics.inflight(-1);
            options.metrics.took(label(r.type), System.nanoTime() - began);
        }
    }

    /** Runs a handler in a thread of its own, so that its time is bounded. */
    private void call(Handler handler, Event event, Guard guard) throws Throwable {
        var task = new FutureTask<Void>(() -> {
            handler.handle(event, guard.connection());
            return null;
        });
        threads.execute(task);
        try {
            task.get(options.handlerTimeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            throw e.getCause();
        } catch (TimeoutException e) {
            guard.end();
            task.cancel(true);
            throw new TimedOut(Options.seconds(options.handlerTimeout));
        } catch (InterruptedException e) {
            guard.end();
            task.cancel(true);
            throw new Interrupted();
        }
    }

    /** Ends a failed transaction, and reports whether its session was lost. */
    private boolean rollBack(Session session, Guard guard, Throwable cause) {
        if (!(cause instanceof TimedOut)) {
            return session.rollBack();
        }
        try {
            ledger.terminate(session.pid); // its statement may run on, and hold locks
        } finally {
            session.discard();
            guard.quiet();
        }
        return false;
    }

    /** Decides what becomes of an event that failed. null: it is to be tried at once. */
    private Outcome settled(Run run, Result result) {
        if (result.outcome != null) {
            return result.outcome;
        }
        var r = run.r;
        if (result.lost && losses.merge(r.id, 1, Integer::sum) < MOST_LOSSES) {
            return null;
        }
        losses.remove(r.id);
        var cause = result.cause;
        var error = cause.getMessage() == null || cause.getMessage().isEmpty() ? cause.getClass().getName()
                : cause.getMessage();
        boolean outage = cause instanceof Outage;
        if (cause instanceof Permanent || run.attempt >= options.most() && !outage) {
            return bury(run, error, cause instanceof Permanent ? "permanent" : "exhausted");
        }
        LOG.log(System.Logger.Level.WARNING, "attempt {0}: {1} ({2} {3} of {4})", run.attempt, error, r.type, r.id,
                name);
        double delay = cause instanceof RetryAfter after ? Options.seconds(after.delay())
                : outage ? 1 : options.delay(run.attempt);
        due.in(delay);
        boolean mine = true;
        if (!run.parked) {
            mine = ledger.parkFailed(r, outage ? 0 : run.attempt, error, delay, run.since);
            if (mine && run.since != null) {
                ledger.committed(r, true);
            }
        } else if (outage) {
            ledger.await(r, error, delay);
        } else {
            mine = ledger.retryLater(r, error, delay);
        }
        return mine ? Outcome.PARKED : Outcome.DUPLICATE;
    }

    private Outcome bury(Run run, String error, String kind) {
        var r = run.r;
        if (!ledger.bury(r, run.parked, error, kind, run.since)) {
            return Outcome.DUPLICATE;
        }
        if (run.since != null) {
            ledger.committed(r, true);
        }
        LOG.log(System.Logger.Level.ERROR, "event moved to the dead letters: {0} ({1} {2} of {3})", error, r.type, r.id,
                name);
        return Outcome.DEAD;
    }

    private Handler handlerOf(Read r) {
        var handler = handlers.get(r.type);
        if (handler == null && !r.isUnfit()) {
            options.metrics.handlerNotFound(r.type);
            if (options.deadIfUnknown) {
                throw new Permanent("no handler for type \"" + r.type + "\"");
            }
        }
        return handler;
    }

    private String label(String type) {
        return handlers.containsKey(type) ? type : "unknown";
    }

    private Outcome counted(Outcome outcome, Read r) {
        if (outcome != null && outcome != Outcome.PARKED) {
            options.metrics.processed(outcome, label(r.type));
        }
        return outcome;
    }
}
