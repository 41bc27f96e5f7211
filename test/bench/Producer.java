import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The client "java" of the comparison: Kafka's own producer with its own defaults, one thread that sends. Orders come as
 * JSON in the environment, the outcome goes to stdout as JSON; both as client_test.go has them.
 */
public final class Producer {
  private static final int HAND_OVER = 500; // records handed over at a time when there is no pace

  private final JsonNode orders;
  private final KafkaProducer<byte[], byte[]> producer;
  private final byte[][] keys;
  private final byte[][] values = new byte[4096][];
  private final AtomicReference<Exception> failure = new AtomicReference<>();
  private long[] took; // nanoseconds from hand-over to acknowledgement, by record; null = not measured

  private Producer(JsonNode orders) {
    this.orders = orders;
    Properties p = new Properties();
    StringBuilder brokers = new StringBuilder();
    orders.get("Brokers").forEach(b -> brokers.append(brokers.length() > 0 ? "," : "").append(b.asText()));
    p.put("bootstrap.servers", brokers.toString());
    p.put("acks", "all");
    if (orders.get("Rate").asInt() > 0) {
      p.put("linger.ms", "0");
    }
    producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
    keys = new byte[orders.get("Keys").asInt()][];
    for (int n = 0; n < keys.length; n++) {
      keys[n] = String.format("018f3a5e-0000-7000-8000-%012d", n).getBytes(StandardCharsets.UTF_8);
    }
    for (int n = 0; n < values.length; n++) {
      values[n] = new byte[orders.get("Payload").asInt()];
      for (int i = 0; i < values[n].length; i++) {
        values[n][i] = (byte) ('a' + (i * 7 + n) % 26);
      }
    }
  }

  /** Sends the records first to first+n-1, at the rate if there is one, and waits for the last acknowledgement. */
  private void produce(int first, int n, int rate) throws Exception {
    String topic = orders.get("Topic").asText();
    long began = System.nanoTime();
    for (int sent = 0; sent < n; ) {
      int due = Math.min(n - sent, HAND_OVER);
      if (rate > 0) {
        due = Math.min(n - sent, (int) ((System.nanoTime() - began) / 1e9 * rate) - sent);
      }
      if (due <= 0) {
        Thread.sleep(1); // the pace is what is wanted here
        continue;
      }
      for (int i = first + sent; i < first + sent + due; i++) {
        int number = i - first;
        long handed = System.nanoTime();
        producer.send(
            new ProducerRecord<>(topic, keys[i % keys.length], values[i % values.length]),
            (metadata, e) -> {
              if (e != null) {
                failure.compareAndSet(null, e);
              } else if (took != null) {
                took[number] = System.nanoTime() - handed;
              }
            });
      }
      sent += due;
    }
    producer.flush();
    if (failure.get() != null) {
      throw failure.get();
    }
  }

  private static long cpu() {
    return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }

  private String run() throws Exception {
    int warmUp = orders.get("WarmUp").asInt();
    int records = orders.get("Records").asInt();
    int rate = orders.get("Rate").asInt();
    produce(0, warmUp, 0);
    if (rate > 0) {
      took = new long[records];
    }
    long began = System.nanoTime();
    long cpu = cpu();
    produce(warmUp, records, rate);
    double seconds = (System.nanoTime() - began) / 1e9;
    double used = (cpu() - cpu) / 1e9;
    producer.close();
    double[] q = new double[3];
    if (rate > 0) {
      Arrays.sort(took);
      q[0] = took[records / 2] / 1e6;
      q[1] = took[Math.min(records * 99 / 100, records - 1)] / 1e6;
      q[2] = took[records - 1] / 1e6;
    }
    return String.format(
        Locale.ROOT,
        "{\"Seconds\":%f,\"CPU\":%f,\"P50\":%f,\"P99\":%f,\"Max\":%f}",
        seconds, used, q[0], q[1], q[2]);
  }

  public static void main(String[] args) {
    try {
      System.out.println(new Producer(new ObjectMapper().readTree(System.getenv("CDC_RELAY_BENCH_CLIENT"))).run());
    } catch (Exception e) {
      e.printStackTrace();
      System.exit(1);
    }
  }
}
