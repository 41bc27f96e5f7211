package io.github.cdcrelay.inbox;

/** What the handler needs is away. The event is tried again, and no attempt is counted. */
public class Outage extends RuntimeException {
    private static final long serialVersionUID = 1;

    public Outage(String message) {
        super(message);
    }

    public Outage(String message, Throwable cause) {
        super(message, cause);
    }
}
