import com.rabbitmq.client.ConnectionFactory;
import io.github.cdcrelay.inbox.NatsRunner;
import io.github.cdcrelay.inbox.RabbitRunner;
import io.github.cdcrelay.inbox.RedisRunner;
import io.github.cdcrelay.inbox.TopicsRunner;
import io.lettuce.core.RedisClient;
import io.nats.client.Options;
import java.net.URI;
import java.util.List;

/** Readers of brokers other than Kafka. */
class Brokers {
    private Brokers() {}

    /** Starts to read. */
    static AutoCloseable runner(String broker, String url, List<String> topics, int workers) throws Exception {
        return switch (broker) {
            case "rabbitmq" -> {
                var factory = new ConnectionFactory();
                factory.setUri(URI.create(url));
                factory.setVirtualHost("/"); // a path of / is one without a name to this client
                factory.setRequestedHeartbeat(2);
                yield start(new RabbitRunner(Driver.inbox, topics, factory, workers));
            }
            case "redis-stream" -> {
                var client = RedisClient.create(url);
                var runner = start(new RedisRunner(Driver.inbox, topics, client, workers));
                yield () -> {
                    runner.close();
                    client.shutdown();
                };
            }
            case "nats" -> {
                var options = new Options.Builder().server(url).build();
                yield start(new NatsRunner(Driver.inbox, topics, options, workers));
            }
            default -> throw new IllegalArgumentException("no broker " + broker);
        };
    }

    private static TopicsRunner start(TopicsRunner runner) {
        new Thread(runner).start();
        return runner;
    }
}
