package io.github.cdcrelay.inbox;

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.LongString;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Reads queues of RabbitMQ with amqp-client and hands their messages to an inbox until it is stopped. A message leaves
 * its queue when its event is decided: done, parked or dead. So a restored database is not filled up again. No other
 * program may consume the queues. Quorum queues need x-single-active-consumer.
 */
public final class RabbitRunner extends TopicsRunner {
    private static final int WAIT = 500; // milliseconds
    private static final int PATIENCE = 10_000; // milliseconds, with a connection that is closed

    private final ConnectionFactory factory;

    /** As the other one, with 8 workers. */
    public RabbitRunner(Inbox inbox, Collection<String> queues, ConnectionFactory factory) {
        this(inbox, queues, factory, 8);
    }

    /**
     * @param factory makes a connection for each queue, and another one when that is lost
     * @param workers how many handlers run at once. The inbox's pool needs two connections more
     */
    public RabbitRunner(Inbox inbox, Collection<String> queues, ConnectionFactory factory, int workers) {
        super(inbox, queues, true, workers);
        this.factory = factory.clone();
        this.factory.setAutomaticRecoveryEnabled(false); // it would deliver what is in hand a second time
    }

    @Override
    Topic open(String name) throws Exception {
        var connection = factory.newConnection("inbox " + name);
        try {
            return new Queue(name, connection);
        } catch (Exception e) {
            connection.abort(PATIENCE);
            throw e;
        }
    }

    private record Delivery(long tag, AMQP.BasicProperties properties, byte[] body) {}

    private static final class Queue implements Topic {
        private final String name;
        private final Connection connection;
        private final Channel channel;
        private final Channel asking; // another one, as an error closes it
        // RabbitMQ has no position. A later process's numbers are higher.
        private final long first = System.currentTimeMillis() * 1000;
        private final BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
        private volatile Exception ended;
        private long offset = first;
        private long last; // delivery tag of what next returned

        Queue(String name, Connection connection) throws IOException {
            this.name = name;
            this.connection = connection;
            channel = connection.createChannel();
            asking = connection.createChannel();
            channel.basicQos(2 * WINDOW);
        }

        @Override
        public Bounds bounds(long next) throws IOException {
            return new Bounds("queue", first, UNKNOWN, asking.queueDeclarePassive(name).getMessageCount(), "");
        }

        /** Begins when no other consumer is there: what one has that died goes back to its place before it is gone. */
        @Override
        public void seek(long next) throws IOException {
            int others = asking.queueDeclarePassive(name).getConsumerCount();
            if (others > 0) {
                throw new IllegalStateException("queue " + name + " has " + others + " other consumers: stop them");
            }
            boolean exclusive = true;
            channel.basicConsume(name, false, "", false, exclusive, Map.of(), new Arrivals(channel));
        }

        /** The client's thread puts into arrived what the server sends. */
        private final class Arrivals extends DefaultConsumer {
            Arrivals(Channel channel) {
                super(channel);
            }

            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                arrived.add(new Delivery(envelope.getDeliveryTag(), properties, body));
            }

            @Override
            public void handleCancel(String tag) {
                ended = new IOException("RabbitMQ has ended the consumer of queue " + name + ": was it deleted?");
            }

            @Override
            public void handleShutdownSignal(String tag, ShutdownSignalException signal) {
                ended = new IOException("the connection for queue " + name + " was lost: " + signal.getMessage(),
                        signal);
            }
        }

        @Override
        public List<Message> next() throws Exception {
            var delivery = arrived.poll(WAIT, TimeUnit.MILLISECONDS);
            beat();
            if (delivery == null) {
                return List.of();
            }
            var some = new ArrayList<>(List.of(delivery));
            arrived.drainTo(some, WINDOW - 1);
            last = some.get(some.size() - 1).tag();
            return some.stream().map(this::message).toList();
        }

        /** Undoes what the relay does to make a message. */
        private Message message(Delivery delivery) {
            var headers = new LinkedHashMap<String, String>();
            byte[] key = null;
            byte[] value = delivery.body();
            var properties = delivery.properties();
            if (properties.getMessageId() != null) {
                headers.put("id", properties.getMessageId());
            }
            if (properties.getType() != null) {
                headers.put("event_type", properties.getType());
            }
            var more = properties.getHeaders() == null ? Map.<String, Object>of() : properties.getHeaders();
            for (var header : more.entrySet()) {
                var bytes = bytes(header.getValue());
                switch (header.getKey()) {
                    case "x-outbox-key" -> key = bytes;
                    case "x-outbox-tombstone" -> value = null;
                    default -> headers.put(header.getKey(), new String(bytes, StandardCharsets.UTF_8));
                }
            }
            return new Message(name, 0, offset++, key, value, headers);
        }

        private static byte[] bytes(Object value) {
            if (value instanceof byte[] bytes) {
                return bytes;
            } else if (value instanceof LongString text) {
                return text.getBytes();
            }
            return value == null ? new byte[0] : value.toString().getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public void beat() throws Exception {
            if (ended != null) {
                throw ended;
            }
        }

        @Override
        public void settle() throws IOException {
            channel.basicAck(last, true);
        }

        @Override
        public void close() throws IOException {
            connection.close(PATIENCE);
        }
    }
}
