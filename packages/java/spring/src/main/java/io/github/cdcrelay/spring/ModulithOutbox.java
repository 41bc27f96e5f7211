package io.github.cdcrelay.spring;

import io.github.cdcrelay.emit.Event;
import io.github.cdcrelay.emit.Outbox;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.context.ApplicationListener;
import org.springframework.context.PayloadApplicationEvent;
import org.springframework.expression.common.TemplateParserContext;
import org.springframework.expression.spel.standard.SpelExpressionParser;
import org.springframework.modulith.events.EventExternalizationConfiguration;

/**
 * Writes the application events that Spring Modulith externalizes into the outbox, when they are published and in the
 * transaction of the publisher, instead of sending them to a broker after its commit. The target is the aggregate type,
 * the key the aggregate's id, and the name of the class the event's type. An event without a key has no order.
 */
final class ModulithOutbox implements ApplicationListener<PayloadApplicationEvent<?>> {
    private final EventExternalizationConfiguration externalized;
    private final OutboxEmitter outbox;

    ModulithOutbox(EventExternalizationConfiguration externalized, OutboxEmitter outbox) {
        this.externalized = externalized;
        this.outbox = outbox;
    }

    @Override
    public boolean supportsAsyncExecution() {
        return false; // another thread has another transaction
    }

    @Override
    public void onApplicationEvent(PayloadApplicationEvent<?> published) {
        var event = published.getPayload();
        if (!externalized.supports(event)) {
            return;
        }
        var target = externalized.determineTarget(event);
        var mapped = externalized.map(event);
        var id = Outbox.newId();
        var key = target.getKey() == null ? "" : evaluated(target.getKey(), event);
        var emitted = Event.of(evaluated(target.getTarget(), event), key.isEmpty() ? id.toString() : key,
                event.getClass().getSimpleName(), mapped);
        outbox.emit(emitted.withId(id).withHeaders(texts(externalized.getHeadersFor(event))));
    }

    /** Returns a text with what its expressions, such as #{id}, say of the event. */
    private static String evaluated(String text, Object event) {
        var value = new SpelExpressionParser().parseExpression(text, new TemplateParserContext()).getValue(event);
        return value == null ? "" : value.toString();
    }

    private static Map<String, String> texts(Map<String, Object> headers) {
        var texts = new LinkedHashMap<String, String>();
        headers.forEach((name, value) -> texts.put(name, String.valueOf(value)));
        return texts;
    }
}
