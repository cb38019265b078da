import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's share consumers running the suite's tasks, one in each thread. Settings come from environment variables. */
public class SharePeer {
    private static final Map<String, String> ENVIRONMENT = System.getenv();
    private static final String SERVERS = ENVIRONMENT.get("KAFKA_BOOTSTRAP_SERVER");
    private static final String GROUP = ENVIRONMENT.get("KAFKA_CONSUMER_GROUP_ID");
    private static volatile boolean stopped;

    public static void main(String[] arguments) throws Exception {
        configureGroup();
        var producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", SERVERS, "enable.idempotence", true),
                new ByteArraySerializer(), new ByteArraySerializer());
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(ENVIRONMENT.get("BENCH_CONCURRENCY")); number++) {
            var thread = new Thread(() -> run(producer));
            thread.setUncaughtExceptionHandler((where, error) -> {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            });
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(threads)));
    }

    /** A share group starts at the end of a topic and locks a record for 30 s, unless its configuration says otherwise. */
    private static void configureGroup() throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
        var wanted = List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("share.record.lock.duration.ms", "60000"), AlterConfigOp.OpType.SET));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", SERVERS))) {
            admin.incrementalAlterConfigs(Map.of(group, wanted)).all().get();
        }
    }

    private static void run(KafkaProducer<byte[], byte[]> producer) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", SERVERS, "group.id", GROUP, "share.acknowledgement.mode", "explicit",
                "max.poll.records", ENVIRONMENT.get("BENCH_RECORDS"), "share.acquire.mode", ENVIRONMENT.get("BENCH_ACQUIRE"));
        try (var consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(ENVIRONMENT.get("KAFKA_REQUEST_TOPIC")));
            while (!stopped) {
                work(consumer, producer);
            }
        }
    }

    /** A record is acknowledged when its answer is confirmed. */
    private static void work(KafkaShareConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {
        String handler = ENVIRONMENT.get("BENCH_HANDLER");
        String answers = ENVIRONMENT.get("KAFKA_ACK_TOPIC");
        Map<ConsumerRecord<byte[], byte[]>, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
            var answer = new ProducerRecord<>(answers, record.key(), Answering.answer(record, handler));
            sent.put(record, producer.send(answer));
        }
        producer.flush();
        sent.forEach((record, confirmation) -> {
            check(confirmation);
            consumer.acknowledge(record);
        });
        consumer.commitAsync();
    }

    private static void check(Future<RecordMetadata> confirmation) {
        try {
            confirmation.get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException("an answer was not confirmed", error);
        }
    }

    private static void stop(List<Thread> threads) {
        stopped = true;
        for (Thread thread : threads) {
            try {
                thread.join(5_000);
            } catch (InterruptedException error) {
                return;
            }
        }
    }
}
