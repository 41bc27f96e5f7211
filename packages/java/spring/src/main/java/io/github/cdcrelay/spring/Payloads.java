package io.github.cdcrelay.spring;

import java.lang.reflect.Type;

/** Reads and writes payloads. Without a bean of this type Jackson does, as the application configures it. */
public interface Payloads {
    /** Reads a payload. Whatever this throws makes the event a dead letter, as the next attempt reads the same. */
    Object read(String json, Type type) throws Exception;

    /** Returns the JSON of a payload. */
    String write(Object payload) throws Exception;
}
