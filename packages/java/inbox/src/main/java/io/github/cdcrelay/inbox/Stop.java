package io.github.cdcrelay.inbox;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Tells threads to stop, also those that sleep. */
final class Stop {
    private final CountDownLatch asked = new CountDownLatch(1);

    void set() {
        asked.countDown();
    }

    boolean isSet() {
        return asked.getCount() == 0;
    }

    /** Sleeps for so many nanoseconds, or until set. */
    void sleep(long nanoseconds) {
        try {
            asked.await(nanoseconds, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
