package io.github.cdcrelay.inbox;

/** Tries parked events when they are due, and forgets old ids, until stop. */
final class Retries implements Runnable {
    private static final System.Logger LOG = System.getLogger(Retries.class.getName());
    private static final long LOOK_EVERY = 250_000_000L; // nanoseconds; for events that another process has parked
    private static final long FORGET_EVERY = 60_000_000_000L;
    private final Inbox inbox;
    private final Stop stop;

    Retries(Inbox inbox, Stop stop) {
        this.inbox = inbox;
        this.stop = stop;
    }

    @Override
    public void run() {
        long forgot = System.nanoTime();
        while (!stop.isSet()) {
            try {
                if (inbox.retryDue() != null) {
                    continue;
                }
                if (System.nanoTime() - forgot > FORGET_EVERY) {
                    forgot = System.nanoTime();
                    inbox.ledger.forget(Options.seconds(inbox.options.keep));
                }
            } catch (RuntimeException e) {
                LOG.log(System.Logger.Level.ERROR, "retries: {0}", e.getMessage());
                stop.sleep(1_000_000_000L);
            }
            stop.sleep(inbox.due.sleep(LOOK_EVERY));
        }
    }
}
