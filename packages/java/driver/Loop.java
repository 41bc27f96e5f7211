import com.google.gson.JsonParser;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer without the inbox: at least once, and a failure ends it. An interrupt stops it. */
class Loop extends Thread {
    private final Map<String, Object> config;
    private final List<String> topics;
    private final int workers;

    Loop(Map<String, Object> config, List<String> topics, int workers) {
        this.config = new HashMap<>(config);
        this.config.putAll(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        this.topics = topics;
        this.workers = workers;
    }

    @Override
    public void run() {
        var threads = Executors.newFixedThreadPool(workers);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(topics);
            while (!isInterrupted()) {
                var records = consumer.poll(Duration.ofMillis(100));
                var tasks = records.partitions().stream().<Callable<Void>>map(p -> () -> handle(records.records(p)));
                for (var done : threads.invokeAll(tasks.toList())) {
                    done.get();
                }
                consumer.commitAsync();
            }
        } catch (InterruptException | InterruptedException e) {
            return;
        } catch (ExecutionException e) {
            throw new IllegalStateException(e);
        } finally {
            threads.shutdown();
        }
    }

    private static Void handle(List<ConsumerRecord<byte[], byte[]>> records) throws SQLException {
        try (var connection = Driver.pool.getConnection()) {
            connection.setAutoCommit(false);
            for (var record : records) {
                var json = new String(record.value(), StandardCharsets.UTF_8);
                var n = JsonParser.parseString(json).getAsJsonObject().get("n").getAsLong();
                var id = new String(record.headers().lastHeader("id").value(), StandardCharsets.UTF_8);
                Driver.insert(connection, id, new String(record.key(), StandardCharsets.UTF_8), n, 1, json);
                connection.commit();
            }
        }
        return null;
    }
}
