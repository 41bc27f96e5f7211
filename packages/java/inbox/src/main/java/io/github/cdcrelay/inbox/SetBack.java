package io.github.cdcrelay.inbox;

/** The database has less than this process committed: it was restored. Read again from the stored offsets. */
class SetBack extends RuntimeException {
    private static final long serialVersionUID = 1;

    SetBack(String message) {
        super(message);
    }
}
