package io.github.cdcrelay.inbox;

/** Decides how many events go into one transaction: as many as handlers manage in the target's time. */
final class Pace {
    private static final double TARGET = 0.02; // seconds, of a transaction with several events
    private static final int WAIT_AFTER_SLOW = 100; // events, until two are tried together again
    private static final int WAIT_AT_MOST = 1_000;

    private final int most;
    private double each = TARGET / 8; // what one event takes, smoothed
    private int alone;
    private int failures;

    Pace(int most) {
        this.most = most;
    }

    /** How many events the next transaction is for. */
    synchronized int next() {
        if (most < 2) {
            return 1;
        } else if (alone == 0) {
            return Math.min(most, Math.max(2, (int) (TARGET / each)));
        }
        alone--;
        return 1;
    }

    /** Takes in that so many events were committed together. A pause of the machine counts little. */
    synchronized void went(int events, double seconds) {
        failures = 0;
        each += (Math.min(seconds / events, each * 4) - each) / 4;
        if (each * 2 > TARGET) {
            alone = WAIT_AFTER_SLOW;
        }
    }

    /** Takes in that so many could not be committed together: they go by themselves, and others for a while. */
    synchronized void failed(int events) {
        alone = Math.min(WAIT_AT_MOST, events << Math.min(failures, 10));
        failures++;
    }
}
