package io.github.cdcrelay.inbox;

/** Decides how many events go into one transaction: as many as handlers manage in the target's time. */
final class Pace {
    private static final double TARGET = 0.02; // seconds, of a transaction with several events
    private static final int WAIT_AFTER_SLOW = 100; // events, until two are tried together again
    private static final int WAIT_AT_MOST = 1_000;

    private final int most;
    private int size;
    private int alone;
    private int failures;

    Pace(int most) {
        this.most = most;
        this.size = Math.min(8, most);
    }

    /** How many events the next transaction is for. */
    synchronized int next() {
        if (alone == 0) {
            return Math.max(1, size);
        }
        alone--;
        return 1;
    }

    /** Takes in that so many events were committed together. */
    synchronized void went(int events, double seconds) {
        failures = 0;
        if (seconds <= TARGET) {
            if (events >= size) {
                size = Math.min(most, size * 2);
            }
            return;
        }
        size = Math.max(2, (int) (events * TARGET / seconds));
        if (2 * seconds > events * TARGET) {
            alone = WAIT_AFTER_SLOW;
        }
    }

    /** Takes in that so many could not be committed together: they go by themselves, and others for a while. */
    synchronized void failed(int events) {
        alone = Math.min(WAIT_AT_MOST, events << Math.min(failures, 10));
        failures++;
        size = Math.max(2, size / 2);
    }
}
