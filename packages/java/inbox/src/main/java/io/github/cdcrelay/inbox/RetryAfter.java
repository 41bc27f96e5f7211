package io.github.cdcrelay.inbox;

import java.time.Duration;

/** A failed attempt whose next one comes after a delay. */
public class RetryAfter extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final Duration delay;

    public RetryAfter(Duration delay, String message) {
        super(message);
        this.delay = delay;
    }

    public Duration delay() {
        return delay;
    }
}
