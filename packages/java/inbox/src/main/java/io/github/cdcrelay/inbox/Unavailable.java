package io.github.cdcrelay.inbox;

/** The inbox's own statements failed, so the event is not decided. Hand the message in again. */
public class Unavailable extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unavailable(String message, Throwable cause) {
        super(message, cause);
    }
}
