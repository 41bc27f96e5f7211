package io.github.cdcrelay.inbox;

import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToLongFunction;

/**
 * The inbox's metrics with Micrometer. In Prometheus they have the names of the relay's dashboards and alerts. Pass it to
 * {@link Options#metrics}, and call watch with the inbox.
 */
public final class MicrometerMetrics implements Metrics {
    private static final int MOST_TYPES = 50; // without a handler, which have a label of their own
    private static final long KEPT = 1_000_000_000L; // ns that what was read from the tables is used again
    private static final Duration[] BOUNDS = java.util.stream.LongStream
            .of(5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000).mapToObj(Duration::ofMillis)
            .toArray(Duration[]::new);

    private final MeterRegistry registry;
    private final AtomicInteger inflight = new AtomicInteger();
    private final AtomicLong lastMillis = new AtomicLong();
    private final Map<String, AtomicLong> lags = new ConcurrentHashMap<>();
    private final Map<String, Timer> timers = new ConcurrentHashMap<>();
    private final Set<String> missing = ConcurrentHashMap.newKeySet();

    public MicrometerMetrics(MeterRegistry registry) {
        this.registry = registry;
        Gauge.builder("consumer.inflight", inflight, AtomicInteger::get).description("Handlers that run")
                .register(registry);
    }

    @Override
    public void processed(Outcome outcome, String type) {
        registry.counter("consumer.events.processed", "status", outcome.name().toLowerCase(java.util.Locale.ROOT), "type",
                type).increment();
        if (lastMillis.getAndSet(System.currentTimeMillis()) == 0) {
            Gauge.builder("consumer.last.processed.timestamp.seconds", lastMillis, at -> at.get() / 1000.0)
                    .description("When an event was decided last").register(registry);
        }
    }

    @Override
    public void retried(String type) {
        registry.counter("consumer.retry.attempts", "type", type).increment();
    }

    @Override
    public void handlerNotFound(String type) {
        if (missing.size() < MOST_TYPES) {
            missing.add(type);
        }
        registry.counter("consumer.handler.not.found", "type", missing.contains(type) ? type : "unknown").increment();
    }

    @Override
    public void took(String type, long nanos) {
        timers.computeIfAbsent(type, t -> Timer.builder("consumer.process.duration").tag("type", t)
                .serviceLevelObjectives(BOUNDS).register(registry)).record(Duration.ofNanos(nanos));
    }

    @Override
    public void inflight(int change) {
        inflight.addAndGet(change);
    }

    @Override
    public void lag(String topic, int partition, long messages) {
        lags.computeIfAbsent(topic + "/" + partition, place -> {
            var lag = new AtomicLong();
            Gauge.builder("broker.consumer.lag", lag, AtomicLong::get).tag("topic", topic)
                    .tag("partition", String.valueOf(partition)).description("Messages not yet decided").register(registry);
            return lag;
        }).set(messages);
    }

    /** Adds the gauges that are read from the tables, at most once a second. They are NaN while that fails. */
    public void watch(Inbox inbox) {
        var tables = new Tables(inbox);
        tables.add("consumer.parked.events", "Events that wait for another attempt", Ledger.Counts::parked);
        tables.add("consumer.parked.keys", "Keys with events that wait", Ledger.Counts::keys);
        tables.add("consumer.dead.letters.open", "Dead letters not yet replayed or discarded", Ledger.Counts::dead);
    }

    private final class Tables {
        private final Inbox inbox;
        private Ledger.Counts counts;
        private long readAt;

        Tables(Inbox inbox) {
            this.inbox = inbox;
        }

        void add(String name, String description, ToLongFunction<Ledger.Counts> of) {
            Gauge.builder(name, this, tables -> tables.read(of)).description(description).strongReference(true)
                    .register(registry);
        }

        private synchronized double read(ToLongFunction<Ledger.Counts> of) {
            if (counts == null || System.nanoTime() - readAt > KEPT) {
                try {
                    counts = inbox.ledger.counts();
                    readAt = System.nanoTime();
                } catch (Unavailable e) {
                    counts = null;
                    return Double.NaN;
                }
            }
            return of.applyAsLong(counts);
        }
    }
}
