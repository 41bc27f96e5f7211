package io.github.cdcrelay.inbox;

/** When the next event is due that this process has parked. */
final class Due {
    private boolean any;
    private long at; // by System.nanoTime; guarded by this, as any

    /** Notes an event that is due in so many seconds. */
    synchronized void in(double seconds) {
        long then = System.nanoTime() + (long) (seconds * 1e9);
        at = any && at - then < 0 ? at : then;
        any = true;
    }

    /** Returns how many nanoseconds to sleep, at most so many, and forgets what is due. */
    synchronized long sleep(long atMost) {
        long left = any ? at - System.nanoTime() : atMost;
        if (left <= 0) {
            any = false;
        }
        return Math.max(5_000_000, Math.min(left, atMost));
    }
}
