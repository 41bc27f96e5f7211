package io.github.cdcrelay.spring;

import io.github.cdcrelay.inbox.Options;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;
import org.springframework.boot.context.properties.source.InvalidConfigurationPropertyValueException;

/**
 * The settings of an inbox.
 *
 * @param name the permanent name of this consumer. Without it there is no inbox
 * @param schema of the inbox's tables
 * @param attempts after how many an event is a dead letter
 * @param backOff the delay after the first attempt, doubled for each
 * @param maxBackOff the longest delay
 * @param handlerTimeout how long a handler may take
 * @param maxBatch events in one transaction at most
 * @param keep how long the ids of decided events are kept
 * @param deadIfUnknown makes events without a handler dead letters
 * @param topics of Kafka that are read. Without them nothing is
 * @param workers how many handlers run at once. The pool needs two connections more
 * @param kafka settings of Kafka's consumer, by Kafka's names
 */
@ConfigurationProperties("cdc-relay.inbox")
public record InboxProperties(String name, @DefaultValue("public") String schema, @DefaultValue("5") int attempts,
        @DefaultValue("50ms") Duration backOff, @DefaultValue("5m") Duration maxBackOff,
        @DefaultValue("30s") Duration handlerTimeout, @DefaultValue("100") int maxBatch,
        @DefaultValue("14d") Duration keep, boolean deadIfUnknown, @DefaultValue List<String> topics,
        @DefaultValue("8") int workers, @DefaultValue Map<String, String> kafka) {

    /** Checks the settings, with errors that Boot shows as such. */
    Options options() {
        if (name == null || name.isBlank()) {
            throw invalid("name", name, "it must be the permanent name of this consumer, such as billing");
        }
        atLeastOne("attempts", attempts);
        atLeastOne("max-batch", maxBatch);
        atLeastOne("workers", workers);
        positive("back-off", backOff);
        positive("max-back-off", maxBackOff);
        positive("handler-timeout", handlerTimeout);
        positive("keep", keep);
        var options = new Options().schema(schema).attempts(attempts).backOff(backOff, maxBackOff)
                .handlerTimeout(handlerTimeout).maxBatch(maxBatch).keep(keep);
        return deadIfUnknown ? options.deadIfUnknown() : options;
    }

    private static void atLeastOne(String setting, int value) {
        if (value < 1) {
            throw invalid(setting, value, "it must be at least 1");
        }
    }

    private static void positive(String setting, Duration value) {
        if (value.isNegative() || value.isZero()) {
            throw invalid(setting, value, "it must be longer than 0, such as 30s");
        }
    }

    static InvalidConfigurationPropertyValueException invalid(String setting, Object value, String reason) {
        return new InvalidConfigurationPropertyValueException("cdc-relay.inbox." + setting, value, reason);
    }
}
