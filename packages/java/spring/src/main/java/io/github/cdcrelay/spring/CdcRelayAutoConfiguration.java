package io.github.cdcrelay.spring;

import io.github.cdcrelay.inbox.Inbox;
import io.github.cdcrelay.inbox.Metrics;
import io.github.cdcrelay.inbox.MicrometerMetrics;
import io.micrometer.core.instrument.MeterRegistry;
import java.lang.reflect.Type;
import javax.sql.DataSource;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.AutoConfigurationPackages;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Conditional;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.annotation.Order;
import org.springframework.core.env.Environment;
import org.springframework.modulith.events.EventExternalizationConfiguration;
import org.springframework.util.ClassUtils;

/** The beans of the starter. The names of other configurations are those of Boot 4 and of Boot 3. */
@AutoConfiguration(afterName = {
    "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration",
    "org.springframework.boot.jackson.autoconfigure.JacksonAutoConfiguration",
    "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
    "org.springframework.boot.autoconfigure.jackson.JacksonAutoConfiguration",
    "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.modulith.events.config.EventExternalizationAutoConfiguration",
})
@EnableConfigurationProperties(InboxProperties.class)
public final class CdcRelayAutoConfiguration {
    private static final String CONSUMER = "org.apache.kafka.clients.consumer.KafkaConsumer";

    @Bean
    static InboxHandlers cdcRelayInboxHandlers(ConfigurableListableBeanFactory beans, ObjectProvider<Inbox> inbox,
            ObjectProvider<DataSource> source, ObjectProvider<Payloads> payloads) {
        return new InboxHandlers(beans, inbox, source, payloads);
    }

    @Bean
    @ConditionalOnProperty("cdc-relay.inbox.name")
    @ConditionalOnSingleCandidate(DataSource.class)
    Inbox cdcRelayInbox(DataSource source, InboxProperties properties, ObjectProvider<Metrics> metrics) {
        if (!properties.topics().isEmpty() && !ClassUtils.isPresent(CONSUMER, getClass().getClassLoader())) {
            throw InboxProperties.invalid("topics", properties.topics(),
                    "to read them, add the dependency org.apache.kafka:kafka-clients");
        }
        var options = properties.options();
        metrics.ifAvailable(options::metrics);
        return new Inbox(InboxTransaction.target(source), properties.name(), options);
    }

    @Bean
    @ConditionalOnMissingBean
    @ConditionalOnSingleCandidate(DataSource.class)
    OutboxEmitter cdcRelayOutboxEmitter(DataSource source, ObjectProvider<Payloads> payloads) {
        return new OutboxEmitter(source, payloads.getIfAvailable());
    }

    /** Jackson of Boot 4. */
    @Order(0) // it is the one to take if there are both
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(tools.jackson.databind.json.JsonMapper.class)
    static final class Jackson3 {
        @Bean
        @ConditionalOnMissingBean(Payloads.class)
        @ConditionalOnBean(tools.jackson.databind.json.JsonMapper.class)
        Payloads cdcRelayPayloads(tools.jackson.databind.json.JsonMapper jackson) {
            return new Payloads() {
                @Override
                public Object read(String json, Type type) {
                    return jackson.readValue(json, jackson.constructType(type));
                }

                @Override
                public String write(Object payload) {
                    return jackson.writeValueAsString(payload);
                }
            };
        }
    }

    /** Jackson of Boot 3. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(com.fasterxml.jackson.databind.ObjectMapper.class)
    static final class Jackson2 {
        @Bean
        @ConditionalOnMissingBean(Payloads.class)
        @ConditionalOnBean(com.fasterxml.jackson.databind.ObjectMapper.class)
        Payloads cdcRelayPayloads2(com.fasterxml.jackson.databind.ObjectMapper jackson) {
            return new Payloads() {
                @Override
                public Object read(String json, Type type) throws Exception {
                    return jackson.readValue(json, jackson.constructType(type));
                }

                @Override
                public String write(Object payload) throws Exception {
                    return jackson.writeValueAsString(payload);
                }
            };
        }
    }

    /** What reads Kafka, if topics are named. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(KafkaConsumer.class)
    static final class Kafka {
        @Bean
        @Conditional(InboxKafka.OnTopics.class)
        InboxReader cdcRelayInboxReader(ObjectProvider<Inbox> inbox, InboxProperties properties,
                Environment environment) {
            properties.options();
            return new InboxReader(inbox.getObject(), properties, InboxKafka.config(environment, properties));
        }
    }

    /** The inbox's metrics, if the application has a registry. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static final class Micrometer {
        @Bean
        @ConditionalOnMissingBean(Metrics.class)
        @ConditionalOnSingleCandidate(MeterRegistry.class)
        MicrometerMetrics cdcRelayInboxMetrics(MeterRegistry registry) {
            return new MicrometerMetrics(registry);
        }

        @Bean
        SmartInitializingSingleton cdcRelayInboxGauges(ObjectProvider<MicrometerMetrics> metrics,
                ObjectProvider<Inbox> inbox) {
            return () -> metrics.ifAvailable(m -> inbox.ifAvailable(m::watch));
        }
    }

    /** Spring Modulith's externalized events, if the application asks for them. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(EventExternalizationConfiguration.class)
    @ConditionalOnProperty("cdc-relay.outbox.modulith")
    static final class Modulith {
        @Bean
        ModulithOutbox cdcRelayModulithOutbox(BeanFactory beans, OutboxEmitter outbox,
                ObjectProvider<EventExternalizationConfiguration> given) {
            return new ModulithOutbox(given.getIfAvailable(() -> EventExternalizationConfiguration
                    .defaults(AutoConfigurationPackages.get(beans)).build()), outbox);
        }
    }

    /** Health of Boot 4. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({KafkaConsumer.class, org.springframework.boot.health.contributor.HealthIndicator.class})
    static final class Health4 {
        @Bean
        @Conditional(InboxKafka.OnTopics.class)
        org.springframework.boot.health.contributor.HealthIndicator inboxHealthIndicator(InboxReader reader) {
            return () -> {
                var trouble = reader.trouble();
                return trouble == null ? org.springframework.boot.health.contributor.Health.up().build()
                        : org.springframework.boot.health.contributor.Health.down().withDetail("trouble", trouble)
                                .build();
            };
        }
    }

    /** Health of Boot 3. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({KafkaConsumer.class, org.springframework.boot.actuate.health.HealthIndicator.class})
    static final class Health3 {
        @Bean
        @Conditional(InboxKafka.OnTopics.class)
        org.springframework.boot.actuate.health.HealthIndicator inboxHealthIndicator(InboxReader reader) {
            return () -> {
                var trouble = reader.trouble();
                return trouble == null ? org.springframework.boot.actuate.health.Health.up().build()
                        : org.springframework.boot.actuate.health.Health.down().withDetail("trouble", trouble).build();
            };
        }
    }
}
