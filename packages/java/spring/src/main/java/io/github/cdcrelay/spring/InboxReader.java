package io.github.cdcrelay.spring;

import io.github.cdcrelay.inbox.Inbox;
import io.github.cdcrelay.inbox.KafkaRunner;
import java.util.Map;
import org.springframework.context.SmartLifecycle;

/**
 * Reads Kafka while the application runs: it starts last, and stops first. A stop waits for the handlers that run, up
 * to spring.lifecycle.timeout-per-shutdown-phase; then the pool closes under them, and they are rolled back.
 */
final class InboxReader implements SmartLifecycle {
    private static final System.Logger LOG = System.getLogger(InboxReader.class.getName());

    private final Inbox inbox;
    private final InboxProperties properties;
    private final Map<String, Object> config;
    private volatile KafkaRunner runner;
    private volatile Thread thread;

    InboxReader(Inbox inbox, InboxProperties properties, Map<String, Object> config) {
        this.inbox = inbox;
        this.properties = properties;
        this.config = config;
    }

    /** Returns why no events are handled. null: all is well. */
    String trouble() {
        var reading = runner;
        return !isRunning() ? "Kafka is not read: the reader is stopped, or has failed as the log shows"
                : reading.trouble();
    }

    @Override
    public void start() {
        var started = new KafkaRunner(inbox, properties.topics(), config, properties.workers());
        runner = started;
        thread = new Thread(() -> read(started), "inbox reader"); // not a daemon: it keeps the program alive
        thread.start();
    }

    private static void read(KafkaRunner runner) {
        try {
            runner.run();
        } catch (RuntimeException e) {
            LOG.log(System.Logger.Level.ERROR, "Kafka is read no more. Restart the application", e);
        }
    }

    @Override
    public void stop() {
        if (thread == null) {
            return;
        }
        runner.stop();
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Does not hold up other beans, nor the time that Boot gives them. */
    @Override
    public void stop(Runnable stopped) {
        new Thread(() -> {
            try {
                stop();
            } finally {
                stopped.run();
            }
        }, "inbox stop").start();
    }

    @Override
    public boolean isRunning() {
        return thread != null && thread.isAlive();
    }
}
