package io.github.cdcrelay.spring;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.context.annotation.Condition;
import org.springframework.context.annotation.ConditionContext;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotatedTypeMetadata;

/** The settings of Kafka's consumer: of spring.kafka what has Kafka's names, and what the inbox sets. */
final class InboxKafka {
    private static final Bindable<Map<String, String>> TEXTS = Bindable.mapOf(String.class, String.class);
    private static final Bindable<List<String>> LIST = Bindable.listOf(String.class);

    private InboxKafka() {}

    /** Reports whether topics are named. */
    static final class OnTopics implements Condition {
        @Override
        public boolean matches(ConditionContext context, AnnotatedTypeMetadata metadata) {
            return !Binder.get(context.getEnvironment()).bind("cdc-relay.inbox.topics", LIST).orElse(List.of())
                    .isEmpty();
        }
    }

    static Map<String, Object> config(Environment environment, InboxProperties properties) {
        var spring = Binder.get(environment);
        var config = new HashMap<String, Object>();
        for (var at : List.of("spring.kafka", "spring.kafka.consumer")) {
            spring.bind(at + ".properties", TEXTS).ifBound(config::putAll);
            spring.bind(at + ".bootstrap-servers", LIST)
                    .ifBound(servers -> config.put("bootstrap.servers", String.join(",", servers)));
            spring.bind(at + ".security.protocol", String.class)
                    .ifBound(protocol -> config.put("security.protocol", protocol));
        }
        config.putAll(properties.kafka());
        if (!config.containsKey("bootstrap.servers")) {
            throw InboxProperties.invalid("topics", properties.topics(),
                    "to read them, name Kafka's brokers in spring.kafka.bootstrap-servers");
        }
        boolean secured = config.keySet().stream().anyMatch(name -> name.startsWith("ssl.") || name.startsWith("sasl."));
        for (var at : List.of("spring.kafka.ssl", "spring.kafka.jaas", "spring.kafka.consumer.ssl")) {
            if (!secured && spring.bind(at, TEXTS).isBound()) {
                throw InboxProperties.invalid("kafka", properties.kafka(), at + " is not read: set Kafka's own names,"
                        + " such as ssl.truststore.location, in spring.kafka.properties or cdc-relay.inbox.kafka");
            }
        }
        return config;
    }
}
