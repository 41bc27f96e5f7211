package io.github.cdcrelay.inbox;

/** The event can never be handled: it becomes a dead letter at once. */
public class Permanent extends RuntimeException {
    private static final long serialVersionUID = 1;

    public Permanent(String message) {
        super(message);
    }

    public Permanent(String message, Throwable cause) {
        super(message, cause);
    }
}
