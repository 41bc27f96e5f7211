package io.github.cdcrelay.inbox;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;

/** How an inbox works. Each method returns the same object. */
public final class Options {
    String schema = "public";
    Duration handlerTimeout = Duration.ofSeconds(30);
    Duration keep = Duration.ofDays(14);
    boolean deadIfUnknown;
    int maxBatch = 100;
    Metrics metrics = Metrics.NONE;
    private int attempts = 5;
    private Duration initial = Duration.ofMillis(50);
    private Duration longest = Duration.ofMinutes(5);
    private List<Duration> schedule;

    /** The schema of the inbox's tables. Default: public. */
    public Options schema(String schema) {
        this.schema = schema;
        return this;
    }

    /** After how many attempts an event is a dead letter. Default: 5. */
    public Options attempts(int attempts) {
        this.attempts = attempts;
        return this;
    }

    /** The delay after the first attempt, doubled for each up to the longest. Default: 50 ms, 5 minutes. */
    public Options backOff(Duration initial, Duration longest) {
        this.initial = initial;
        this.longest = longest;
        return this;
    }

    /** The delay after each attempt, instead of attempts and backOff. The attempt after the last one is the last. */
    public Options schedule(List<Duration> delays) {
        this.schedule = List.copyOf(delays);
        return this;
    }

    /** How long a handler may take. Default: 30 s. */
    public Options handlerTimeout(Duration timeout) {
        this.handlerTimeout = timeout;
        return this;
    }

    /** Makes events without a handler dead letters. Default: they are done with. */
    public Options deadIfUnknown() {
        this.deadIfUnknown = true;
        return this;
    }

    /** Events in one transaction at most, fewer where that takes 20 ms; if it fails, each goes by itself. Default: 100. */
    public Options maxBatch(int events) {
        this.maxBatch = events;
        return this;
    }

    /** What is counted, and how. Default: nothing is. */
    public Options metrics(Metrics metrics) {
        this.metrics = metrics;
        return this;
    }

    /** How long the ids of decided events are kept. Default: 14 days. */
    public Options keep(Duration keep) {
        this.keep = keep;
        return this;
    }

    int most() {
        return schedule == null ? attempts : schedule.size() + 1;
    }

    double delay(int attempt) {
        if (schedule != null) {
            return seconds(schedule.get(attempt - 1));
        }
        double spread = ThreadLocalRandom.current().nextDouble(0.8, 1.2);
        return Math.min(seconds(initial) * Math.pow(2, attempt - 1) * spread, seconds(longest));
    }

    static double seconds(Duration duration) {
        return duration.toMillis() / 1000.0;
    }

    void validate(String name) {
        var problems = new ArrayList<String>();
        if (name == null || name.isEmpty()) {
            problems.add("name must be the permanent name of this consumer");
        }
        var durations = new ArrayList<>(List.of(handlerTimeout, keep, initial, longest));
        durations.addAll(schedule == null ? List.of() : schedule);
        if (attempts < 0 || maxBatch < 0 || durations.stream().anyMatch(Duration::isNegative)) {
            problems.add("durations and attempts must not be negative");
        }
        if (!problems.isEmpty()) {
            throw new IllegalArgumentException("inbox: " + String.join("; ", problems));
        }
    }
}
