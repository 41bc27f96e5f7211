package io.github.cdcrelay.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Makes a method of a bean the handler of events. It returns void, and takes in any order: an
 * {@link io.github.cdcrelay.inbox.Event}, a {@link java.sql.Connection}, and the payload as any type that
 * {@link Payloads} reads. The inbox's transaction is that of its thread: JdbcTemplate, JdbcClient and
 * {@code @Transactional} methods join it. Whatever the method throws is an attempt that failed.
 */
@Documented
@Target(ElementType.METHOD)
@Retention(RetentionPolicy.RUNTIME)
public @interface InboxHandler {
    /** The types of the events. */
    String[] value();
}
