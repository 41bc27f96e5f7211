package io.github.cdcrelay.spring;

import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Inbox;
import io.github.cdcrelay.inbox.Permanent;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.sql.Connection;
import javax.sql.DataSource;
import org.springframework.aop.framework.autoproxy.AutoProxyUtils;
import org.springframework.aop.scope.ScopedProxyUtils;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.core.annotation.AnnotationUtils;
import org.springframework.scheduling.annotation.Async;

/** Registers the methods with {@link InboxHandler} of all beans, before Kafka is read. */
final class InboxHandlers implements SmartInitializingSingleton {
    private final ConfigurableListableBeanFactory beans;
    private final ObjectProvider<Inbox> inbox;
    private final ObjectProvider<DataSource> source;
    private final ObjectProvider<Payloads> payloads;

    InboxHandlers(ConfigurableListableBeanFactory beans, ObjectProvider<Inbox> inbox, ObjectProvider<DataSource> source,
            ObjectProvider<Payloads> payloads) {
        this.beans = beans;
        this.inbox = inbox;
        this.source = source;
        this.payloads = payloads;
    }

    @Override
    public void afterSingletonsInstantiated() {
        for (var name : beans.getBeanNamesForType(Object.class)) {
            var type = ScopedProxyUtils.isScopedTarget(name) ? null : AutoProxyUtils.determineTargetClass(beans, name);
            if (type != null && AnnotationUtils.isCandidateClass(type, InboxHandler.class)) {
                MethodIntrospector.selectMethods(type, InboxHandlers::annotation)
                        .forEach((method, annotation) -> register(name, method, annotation));
            }
        }
    }

    private static InboxHandler annotation(Method method) {
        return AnnotatedElementUtils.findMergedAnnotation(method, InboxHandler.class);
    }

    private void register(String bean, Method found, InboxHandler annotation) {
        var to = inbox.getIfAvailable();
        if (to == null) {
            throw refused(found, "there is no inbox: set cdc-relay.inbox.name, and have one DataSource");
        }
        check(found);
        var object = beans.getBean(bean);
        var method = AopUtils.selectInvocableMethod(found, object.getClass());
        method.setAccessible(true);
        var pool = InboxTransaction.target(source.getObject());
        for (var type : annotation.value()) {
            to.on(type, (event, tx) -> InboxTransaction.run(pool, tx, () -> call(object, method, event, tx)));
        }
    }

    private void check(Method method) {
        if (method.getReturnType() != void.class) {
            throw refused(method, "it must return void: the inbox does not wait for what it returns");
        }
        if (isAsync(method) || isAsync(method.getDeclaringClass())) {
            throw refused(method, "@Async would run it outside of the inbox's transaction");
        }
        int typed = 0;
        for (var type : method.getParameterTypes()) {
            if (type == io.github.cdcrelay.emit.Event.class) {
                throw refused(method, "it takes an event as it is emitted: import io.github.cdcrelay.inbox.Event");
            }
            typed += isPayload(type) ? 1 : 0;
        }
        if (typed > 1) {
            throw refused(method, "it takes more than one payload");
        }
        if (typed > 0 && payloads.getIfAvailable() == null) {
            throw refused(method, "its payload needs Jackson, such as spring-boot-starter-json, or a bean of Payloads");
        }
    }

    private static boolean isAsync(AnnotatedElement element) {
        return AnnotatedElementUtils.hasAnnotation(element, Async.class);
    }

    private static boolean isPayload(Class<?> type) {
        return type != Event.class && type != Connection.class;
    }

    private static IllegalStateException refused(Method method, String why) {
        return new IllegalStateException("@InboxHandler " + method.getDeclaringClass().getSimpleName() + "."
                + method.getName() + ": " + why);
    }

    private Object call(Object bean, Method method, Event event, Connection tx) throws Exception {
        var types = method.getGenericParameterTypes();
        var arguments = new Object[types.length];
        for (int i = 0; i < types.length; i++) {
            arguments[i] = types[i] == Event.class ? event : types[i] == Connection.class ? tx : read(event, types[i]);
        }
        try {
            return method.invoke(bean, arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw (Error) e.getCause();
        }
    }

    private Object read(Event event, Type type) {
        if (event.json() == null) {
            return null;
        }
        try {
            return payloads.getObject().read(event.json(), type);
        } catch (Exception e) {
            throw new Permanent("the payload is not a " + type.getTypeName() + ": " + e.getMessage(), e);
        }
    }
}
