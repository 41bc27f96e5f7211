package io.github.cdcrelay.inbox;

/** What is counted. Threads call it at once; {@link MicrometerMetrics} implements it. */
public interface Metrics {
    /** Counts nothing. */
    Metrics NONE = new Metrics() {};

    /** An event was decided, not to be parked. type is unknown for types without a handler. */
    default void processed(Outcome outcome, String type) {}

    /** An attempt after the first begins. */
    default void retried(String type) {}

    default void handlerNotFound(String type) {}

    /** From the handler's call to its end. */
    default void took(String type, long nanos) {}

    /** So many more handlers run. */
    default void inflight(int change) {}

    /** Messages of a partition that are not yet decided. */
    default void lag(String topic, int partition, long messages) {}
}
