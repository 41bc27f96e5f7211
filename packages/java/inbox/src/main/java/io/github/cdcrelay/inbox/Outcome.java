package io.github.cdcrelay.inbox;

/** How an event was decided. */
public enum Outcome {
    /** Its effect is committed. */
    DONE,
    /** It has no handler. */
    IGNORED,
    /** It was decided before. */
    DUPLICATE,
    /** It is tried again. */
    PARKED,
    /** It is a dead letter. */
    DEAD
}
