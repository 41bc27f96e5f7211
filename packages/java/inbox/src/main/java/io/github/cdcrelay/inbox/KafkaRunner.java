package io.github.cdcrelay.inbox;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics of Kafka and hands their messages to an inbox until it is stopped. Each partition begins at the lower of
 * the database's offset and the group's.
 */
public final class KafkaRunner implements Runnable, AutoCloseable {
    private static final System.Logger LOG = System.getLogger(KafkaRunner.class.getName());
    private static final int WINDOW = 500; // messages in flight: of a partition, so many are suspects after a crash
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Duration ANSWER = Duration.ofSeconds(10);
    private static final long CHECK_EVERY = 1_000_000_000L;
    private static final long SERVE_EVERY = 500; // milliseconds

    private final Inbox inbox;
    private final List<String> topics;
    private final boolean latest;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final int workers;
    private final String holder = UUID.randomUUID().toString();
    private final Stop stop = new Stop();
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean started;
    private volatile String trouble = "not in the group yet";
    // Only the thread of run has these.
    private final Map<TopicPartition, Part> parts = new HashMap<>();
    private List<ConsumerRecord<byte[], byte[]>> early = new ArrayList<>(); // they came while handlers ran

    /** How far this process is with a partition, in an epoch of the inbox's tables. */
    private static final class Part {
        final int epoch;
        final long carefulBelow;
        long next;
        volatile long wrote;

        Part(int epoch, long next, long wrote, long carefulBelow) {
            this.epoch = epoch;
            this.next = next;
            this.wrote = wrote;
            this.carefulBelow = carefulBelow;
        }
    }

    private static final class Stopping extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    /** As the other one, with 8 workers. */
    public KafkaRunner(Inbox inbox, Collection<String> topics, Map<String, Object> config) {
        this(inbox, topics, config, 8);
    }

    /**
     * @param config of the consumer; group.id is the inbox's name unless it is given
     * @param workers how many handlers run at once. The inbox's pool needs two connections more
     */
    public KafkaRunner(Inbox inbox, Collection<String> topics, Map<String, Object> config, int workers) {
        if (!inbox.hasHandlers()) {
            throw new IllegalArgumentException("inbox: there is no handler: call on first");
        }
        if (topics.isEmpty() || workers < 1) {
            throw new IllegalArgumentException("inbox: name the topics to read, and at least one worker");
        }
        this.inbox = inbox;
        this.topics = List.copyOf(topics);
        this.workers = workers;
        var settings = new HashMap<String, Object>(Map.of("group.id", inbox.name, "auto.offset.reset", "earliest"));
        settings.putAll(config);
        settings.putAll(Map.of("enable.auto.commit", "false", "max.poll.records", WINDOW));
        latest = settings.get("auto.offset.reset").equals("latest");
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Returns why no events are handled. null: all is well. */
    public String trouble() {
        return trouble;
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
            consumer.close();
            return;
        }
        try {
            ended.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reads and handles until stop. */
    @Override
    public void run() {
        started = true;
        var retries = new Thread(() -> new Retries(inbox, stop).run(), "inbox retries");
        var pool = Executors.newFixedThreadPool(workers, work -> new Thread(work, "inbox worker"));
        retries.start();
        try {
            consumer.subscribe(topics, new Rebalances());
            read(pool);
        } catch (Stopping e) {
            LOG.log(System.Logger.Level.DEBUG, "stopping");
        } finally {
            stop.set();
            boolean interrupted = Thread.interrupted();
            end(pool, retries);
            ended.countDown();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private void read(ExecutorService pool) {
        long checked = System.nanoTime();
        while (!stop.isSet() && !Thread.currentThread().isInterrupted()) {
            try {
                var records = early;
                early = new ArrayList<>();
                if (records.isEmpty()) {
                    consumer.poll(POLL).forEach(records::add);
                }
                window(pool, records);
            } catch (KafkaException e) {
                troubled(e);
                stop.sleep(1_000_000_000L);
            }
            if (System.nanoTime() - checked > CHECK_EVERY) {
                checked = System.nanoTime();
                check();
            }
        }
    }

    private void end(ExecutorService pool, Thread retries) {
        pool.shutdown();
        try {
            retries.join();
            while (!pool.awaitTermination(1, TimeUnit.MINUTES)) {
                LOG.log(System.Logger.Level.WARNING, "stop: handlers still run");
            }
            consumer.close();
            inbox.ledger.release(holder);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (Unavailable | KafkaException e) {
            LOG.log(System.Logger.Level.WARNING, "stop: {0}. The next process begins carefully", e.getMessage());
        }
    }

    private final class Rebalances implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            try {
                position(consumer.assignment());
                trouble = null;
            } catch (Stopping e) {
                parts.clear();
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            revoked.forEach(parts::remove);
        }
    }

    /** Begins an epoch: reads the offsets of partitions, and goes there. */
    private void position(Set<TopicPartition> partitions) {
        untilAvailable(() -> {
            inbox.ledger.begin();
            parts.clear();
            early.clear();
            var committed = consumer.committed(partitions, ANSWER);
            var lows = consumer.beginningOffsets(partitions, ANSWER);
            var highs = consumer.endOffsets(partitions, ANSWER);
            for (var p : partitions) {
                var of = committed.get(p);
                long first = of != null ? of.offset() : latest ? highs.get(p) : lows.get(p);
                consumer.seek(p, position(p, first, lows.get(p)));
            }
            return null;
        });
    }

    private long position(TopicPartition p, long first, long low) {
        var start = inbox.ledger.start(holder, p.topic(), p.partition(), first);
        long next = Math.min(start.next(), first);
        if (next < low) {
            LOG.log(System.Logger.Level.ERROR, "{0} records of {1}, {2} to {3}, were deleted by the topic before they"
                    + " were read", String.valueOf(low - next), p, String.valueOf(next), String.valueOf(low - 1));
            next = low;
        }
        parts.put(p, new Part(inbox.ledger.epoch(), next, start.next(), start.unclean() ? next + WINDOW : 0));
        return next;
    }

    /** Decides messages, each key's in order, and notes how far their partitions are. */
    private void window(ExecutorService pool, List<ConsumerRecord<byte[], byte[]>> records) {
        var window = new LinkedHashMap<TopicPartition, List<Read>>();
        var of = new HashMap<TopicPartition, Part>();
        var next = new HashMap<TopicPartition, Long>();
        for (var record : records) {
            var place = new TopicPartition(record.topic(), record.partition());
            var part = parts.get(place);
            if (part != null) {
                of.put(place, part);
                next.put(place, record.offset() + 1);
                window.computeIfAbsent(place, p -> new ArrayList<>()).add(new Read(message(record)));
            }
        }
        if (window.isEmpty()) {
            return;
        }
        var reads = window.values().stream().flatMap(List::stream).toList();
        try {
            do {
                var futures = new ArrayList<Future<?>>();
                window.forEach((place, some) -> {
                    var lanes = new Lanes(some);
                    boolean careful = some.get(0).message.offset() < of.get(place).carefulBelow;
                    for (int n = Math.min(workers, lanes.size()); n > 0; n--) {
                        futures.add(pool.submit(() -> decide(lanes, of.get(place), careful)));
                    }
                });
                serve(futures);
            } while (!note(of, next, reads));
        } catch (SetBack e) {
            if (of.values().stream().anyMatch(part -> part.epoch == inbox.ledger.epoch())) { // else a rebalance has
                beginAgain();
            }
        }
    }

    /** Decides what waits of a partition, beside other threads. */
    private void decide(Lanes lanes, Part part, boolean careful) {
        for (var portion = lanes.take(careful ? 1 : inbox.pace.next()); !portion.reads().isEmpty();
                portion = lanes.take(careful ? 1 : inbox.pace.next())) {
            var since = new Ledger.Since(part.epoch, part.wrote);
            var decided = inbox.together(portion.reads(), since);
            for (int i = 0; i < decided.length; i++) {
                var r = portion.reads().get(i);
                if (decided[i] == null) {
                    untilAvailable(() -> inbox.handle(r, r.message.offset() < part.carefulBelow, since));
                }
                if (stop.isSet()) {
                    throw new Stopping();
                }
            }
            lanes.giveBack(portion.rest());
        }
    }

    /** Stays in the group while handlers run, and throws what failed. */
    private void serve(List<Future<?>> futures) {
        while (!areDone(futures)) {
            var paused = new HashSet<>(consumer.assignment());
            consumer.pause(paused);
            try {
                consumer.poll(POLL).forEach(early::add); // of partitions that were assigned just now
            } catch (KafkaException e) {
                troubled(e);
            }
            paused.retainAll(consumer.assignment());
            consumer.resume(paused);
        }
        RuntimeException failed = null;
        for (var future : futures) {
            try {
                future.get();
            } catch (ExecutionException e) {
                var cause = e.getCause() instanceof RuntimeException r ? r : new IllegalStateException(e.getCause());
                failed = failed == null || cause instanceof SetBack ? cause : failed;
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new Stopping();
            }
        }
        if (failed != null) {
            throw failed;
        }
    }

    private static boolean areDone(List<Future<?>> futures) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SERVE_EVERY);
        for (var future : futures) {
            try {
                future.get(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                return false;
            } catch (ExecutionException e) {
                continue; // for later
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new Stopping();
            }
        }
        return true;
    }

    /** Returns false if the database lacks events, which were decided. */
    private boolean note(Map<TopicPartition, Part> of, Map<TopicPartition, Long> next, List<Read> events) {
        var kept = new HashMap<TopicPartition, Part>(of);
        kept.entrySet().removeIf(entry -> parts.get(entry.getKey()) != entry.getValue());
        if (kept.isEmpty()) {
            return true;
        }
        kept.forEach((place, part) -> part.next = next.get(place));
        if (untilAvailable(() -> inbox.ledger.note(places(kept, false), events)) > 0) {
            return false;
        }
        kept.values().forEach(part -> part.wrote = Math.max(part.wrote, part.next));
        kept.keySet().forEach(this::measureLag);
        var offsets = kept.entrySet().stream().collect(
                Collectors.toMap(Map.Entry::getKey, entry -> new OffsetAndMetadata(entry.getValue().next)));
        consumer.commitAsync(offsets, null); // the database's are what counts
        return true;
    }

    private void measureLag(TopicPartition place) {
        if (consumer.assignment().contains(place)) {
            consumer.currentLag(place).ifPresent(
                    lag -> inbox.options.metrics.lag(place.topic(), place.partition(), lag));
        }
    }

    private static List<Ledger.Place> places(Map<TopicPartition, Part> parts, boolean written) {
        var places = new ArrayList<Ledger.Place>();
        parts.forEach((place, part) -> places.add(
                new Ledger.Place(place.topic(), place.partition(), written ? part.wrote : part.next, part.wrote)));
        return places;
    }

    /** Notices a restored database also while no messages come. */
    private void check() {
        try {
            if (!parts.isEmpty()) {
                inbox.ledger.note(places(parts, true), List.of());
            }
        } catch (SetBack e) {
            beginAgain();
        } catch (Unavailable e) {
            troubled(e);
        }
    }

    private void beginAgain() {
        LOG.log(System.Logger.Level.ERROR,
                "the database has less than this process committed: it was restored. Reading again from its offsets");
        position(consumer.assignment());
    }

    /** Runs work again while the database or the broker does not answer, until stop. */
    private <T> T untilAvailable(Supplier<T> work) {
        for (long pause = 50_000_000L; ; pause = Math.min(2 * pause, 2_000_000_000L)) {
            try {
                var result = work.get();
                trouble = null;
                return result;
            } catch (Unavailable | KafkaException e) {
                if (stop.isSet() || Thread.currentThread().isInterrupted()) {
                    throw new Stopping();
                }
                troubled(e);
                stop.sleep(pause);
            }
        }
    }

    private void troubled(RuntimeException e) {
        LOG.log(System.Logger.Level.ERROR, "{0}", e.getMessage());
        trouble = e.getMessage();
    }

    private static Message message(ConsumerRecord<byte[], byte[]> record) {
        var headers = new LinkedHashMap<String, String>();
        for (var header : record.headers()) {
            headers.put(header.key(), header.value() == null ? "" : new String(header.value(), StandardCharsets.UTF_8));
        }
        return new Message(record.topic(), record.partition(), record.offset(), record.key(), record.value(), headers);
    }
}
