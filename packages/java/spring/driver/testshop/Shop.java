package testshop;

import io.github.cdcrelay.inbox.Event;
import io.github.cdcrelay.inbox.Permanent;
import io.github.cdcrelay.spring.InboxHandler;
import io.github.cdcrelay.spring.OutboxEmitter;
import io.micrometer.core.instrument.MeterRegistry;
import java.sql.Connection;
import java.sql.SQLException;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ApplicationContext;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.modulith.events.Externalized;
import org.springframework.stereotype.Component;
import org.springframework.transaction.annotation.Propagation;
import org.springframework.transaction.annotation.Transactional;

/** Books each event, emits two of its own, and fails as the payload says. */
@SpringBootApplication
public class Shop {
    public static void main(String[] args) {
        SpringApplication.run(Shop.class, args);
    }

    /** A payload. It fails up to an attempt. */
    record Order(int n, String fails, Integer until) {}

    /** What Modulith externalizes. */
    @Externalized("booking::#{n()}")
    public record Booked(int n) {}

    @Component
    static class Orders {
        private final Book book;
        private final JdbcClient jdbc;
        private final ApplicationContext context;

        Orders(Book book, JdbcClient jdbc, ApplicationContext context) {
            this.book = book;
            this.jdbc = jdbc;
            this.context = context;
        }

        @InboxHandler("Effect")
        void effect(Connection tx, Order order, Event event) throws ReflectiveOperationException, SQLException {
            var fails = order.fails() == null ? "" : order.fails();
            boolean failing = order.until() != null && event.attempt() <= order.until();
            switch (fails) {
                case "permanent" -> throw new Permanent("as the payload says");
                case "health" -> say(health());
                case "late" -> jdbc.sql("INSERT INTO once VALUES (?)").param(order.n()).update();
                case "swallowed" -> {
                    if (failing) {
                        ignore(() -> book.bookAndFail(order, event));
                        return;
                    }
                }
                default -> { }
            }
            ignore(book::scratch);
            book.book(order, event);
            if (failing) {
                throw new IllegalStateException("as the payload says");
            }
            try (var check = tx.prepareStatement("SELECT 1 / count(*) FROM effect WHERE n = ?")) {
                check.setInt(1, order.n());
                check.execute(); // it is the transaction in which the others are
            }
        }

        private void say(String text) {
            jdbc.sql("INSERT INTO said VALUES (?)").param(text).update();
        }

        /** Asks the indicator of whatever Boot this is, and the metrics. */
        private String health() throws ReflectiveOperationException {
            var indicator = context.getBean("inboxHealthIndicator");
            var registry = context.getBean(MeterRegistry.class);
            return indicator.getClass().getInterfaces()[0].getMethod("health").invoke(indicator) + ", dead letters "
                    + registry.get("consumer.dead.letters.open").gauge().value() + ", done before "
                    + (registry.get("consumer.events.processed").tag("status", "done").counter().count() > 0);
        }

        private static void ignore(Runnable work) {
            try {
                work.run();
            } catch (IllegalStateException e) {
                return; // a mistake, unless the method had a savepoint
            }
        }
    }

    @Component
    static class Book {
        private final JdbcClient jdbc;
        private final OutboxEmitter outbox;
        private final ApplicationEventPublisher publisher;

        Book(JdbcClient jdbc, OutboxEmitter outbox, ApplicationEventPublisher publisher) {
            this.jdbc = jdbc;
            this.outbox = outbox;
            this.publisher = publisher;
        }

        @Transactional
        public void book(Order order, Event event) {
            jdbc.sql("INSERT INTO effect (id, key, n, attempt) VALUES (?, ?, ?, ?)").param(event.id())
                    .param(event.key()).param(order.n()).param(event.attempt()).update();
            outbox.emit(io.github.cdcrelay.emit.Event.of("order", event.key(), "OrderBooked", order));
            publisher.publishEvent(new Booked(order.n()));
        }

        @Transactional
        public void bookAndFail(Order order, Event event) {
            book(order, event);
            throw new IllegalStateException("as the payload says");
        }

        @Transactional(propagation = Propagation.NESTED)
        public void scratch() {
            jdbc.sql("INSERT INTO scratch VALUES (1)").update();
            throw new IllegalStateException("back to the savepoint");
        }
    }
}
