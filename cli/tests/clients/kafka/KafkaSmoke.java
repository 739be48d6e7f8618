import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's Java client against a cluster: KafkaSmoke SERVERS COUNT produce|consume|group plain|idempotent [COMPRESSION]. */
public final class KafkaSmoke {
  private static final String TOPIC = "smoke-java";
  private static final TopicPartition PARTITION = new TopicPartition(TOPIC, 0);
  private static final long BEGINNING = 1_600_000_000_000L;

  private static ProducerRecord<byte[], byte[]> record(int number) {
    byte[] key = number % 3 == 0 ? null : ("key\0" + number % 100).getBytes(StandardCharsets.UTF_8);
    byte[] value = new byte[number % 50 == 49 ? 0 : 10 + number % 300];
    for (int at = 0; at < value.length; at++) value[at] = (byte) (number + at * 7);
    List<Header> headers = new ArrayList<>();
    if (number % 7 == 0) {
      headers.add(new RecordHeader("h", new byte[] {-1, (byte) number}));
      headers.add(new RecordHeader("h", (byte[]) null));
    }
    return new ProducerRecord<>(TOPIC, 0, BEGINNING + number * 3L, key, number % 50 == 48 ? null : value, headers);
  }

  private static void produce(String servers, int count, boolean idempotent, String compression) throws Exception {
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
      NewTopic topic = new NewTopic(TOPIC, 1, (short) 1).configs(Map.of("retention.bytes", "419430400"));
      admin.createTopics(List.of(topic)).all().get();
    }
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", servers,
        "enable.idempotence", idempotent,
        "acks", "all",
        "retries", 1_000,
        "delivery.timeout.ms", 60_000,
        "request.timeout.ms", 5_000,
        "linger.ms", 5,
        "compression.type", compression);
    AtomicInteger acknowledged = new AtomicInteger();
    AtomicReference<Exception> failed = new AtomicReference<>();
    long begun = System.nanoTime();
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
      System.out.println("leader " + producer.partitionsFor(TOPIC).get(0).leader().port());
      for (int number = 0; number < count; number++) {
        producer.send(record(number), (metadata, error) -> {
          if (error != null) failed.compareAndSet(null, error);
          else if (acknowledged.incrementAndGet() % 1000 == 0) System.out.println("acknowledged " + acknowledged);
        });
      }
    }
    if (failed.get() != null) throw failed.get();
    if (acknowledged.get() != count) throw new AssertionError(acknowledged + " of " + count + " acknowledged");
    System.out.printf("%d records produced in %.2f s%n", count, (System.nanoTime() - begun) / 1e9);
  }

  private static void consume(String servers, int count, boolean idempotent) {
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", servers, "enable.auto.commit", false, "auto.offset.reset", "earliest");
    long begun = System.nanoTime();
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      consumer.assign(List.of(PARTITION));
      long end = consumer.endOffsets(List.of(PARTITION)).get(PARTITION);
      long middle = consumer.offsetsForTimes(Map.of(PARTITION, BEGINNING + count / 2 * 3L)).get(PARTITION).offset();
      consumer.seekToBeginning(List.of(PARTITION));
      long offset = 0;
      int before = -1;
      Set<Integer> seen = new HashSet<>();
      while (offset < end) {
        for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofSeconds(10))) {
          int number = (int) ((got.timestamp() - BEGINNING) / 3);
          ProducerRecord<byte[], byte[]> sent = record(number);
          if (got.offset() != offset++) throw new AssertionError("offset " + got.offset() + " after " + (offset - 2));
          boolean same = Arrays.equals(got.key(), sent.key()) && Arrays.equals(got.value(), sent.value())
              && got.timestamp() == sent.timestamp() && Arrays.equals(got.headers().toArray(), sent.headers().toArray());
          if (!same) throw new AssertionError("offset " + got.offset() + " differs from record " + number);
          if (idempotent && number <= before) throw new AssertionError("record " + number + " after " + before);
          if (got.offset() == middle && number < count / 2) throw new AssertionError("record " + number + " is early");
          before = number;
          seen.add(number);
        }
      }
      if (seen.size() != count) throw new AssertionError(count - seen.size() + " records are missing");
      System.out.printf("%d records, %d of them again, in %.2f s%n", count, end - count, (System.nanoTime() - begun) / 1e9);
    }
  }

  /** Two members of a group, one after the other: what one has committed the other does not see again. */
  private static void group(String servers, int count) {
    Map<String, Object> settings = Map.of(
        "bootstrap.servers", servers, "group.id", "readers/1", "enable.auto.commit", false,
        "auto.offset.reset", "earliest", "session.timeout.ms", 6_000, "max.poll.records", 1_000);
    Set<Integer> seen = new HashSet<>();
    long offset = 0;
    long end = 0;
    for (int member = 0; member < 2; member++) {
      try (KafkaConsumer<byte[], byte[]> consumer =
          new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
        end = consumer.endOffsets(List.of(PARTITION)).get(PARTITION);
        consumer.subscribe(List.of(TOPIC));
        long until = member == 0 ? end / 2 : end;
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (offset < until) {
          if (System.nanoTime() > deadline) throw new AssertionError("nothing after " + offset);
          for (ConsumerRecord<byte[], byte[]> got : consumer.poll(Duration.ofSeconds(1))) {
            deadline = System.nanoTime() + 60_000_000_000L;
            if (got.offset() < offset) continue;
            if (got.offset() != offset++) throw new AssertionError("offset " + got.offset() + " after " + (offset - 2));
            seen.add((int) ((got.timestamp() - BEGINNING) / 3));
          }
          try {
            consumer.commitSync();
            System.out.println("acknowledged " + offset);
          } catch (CommitFailedException | RebalanceInProgressException error) {
            // The members join anew; what was read meanwhile comes again.
          }
        }
        if (consumer.committed(Set.of(PARTITION)).get(PARTITION).offset() < until) throw new AssertionError("not committed");
      }
    }
    if (seen.size() != count) throw new AssertionError(count - seen.size() + " records are missing");
    System.out.println(end + " records by two members of a group");
  }

  public static void main(String[] arguments) throws Exception {
    boolean idempotent = arguments[3].equals("idempotent");
    int count = Integer.parseInt(arguments[1]);
    if (arguments[2].equals("produce")) produce(arguments[0], count, idempotent, arguments[4]);
    else if (arguments[2].equals("group")) group(arguments[0], count);
    else consume(arguments[0], count, idempotent);
  }
}
