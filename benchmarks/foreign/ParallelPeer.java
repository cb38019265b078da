import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Confluent's parallel-consumer running the suite's tasks. Settings come from environment variables. */
public class ParallelPeer {
    public static void main(String[] arguments) {
        Map<String, String> environment = System.getenv();
        String servers = environment.get("KAFKA_BOOTSTRAP_SERVER");
        String handler = environment.get("BENCH_HANDLER");
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(environment.get("BENCH_ORDER")))
                .maxConcurrency(Integer.parseInt(environment.get("BENCH_CONCURRENCY")))
                .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                .commitInterval(Duration.ofMillis(Long.parseLong(environment.get("BENCH_COMMIT_MS")))) // default 5 s
                .consumer(consumer(servers, environment.get("KAFKA_CONSUMER_GROUP_ID")))
                .producer(producer(servers))
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(environment.get("KAFKA_REQUEST_TOPIC")));
        Runtime.getRuntime().addShutdownHook(new Thread(processor::close));
        String answers = environment.get("KAFKA_ACK_TOPIC");
        processor.pollAndProduce(context -> {
            ConsumerRecord<byte[], byte[]> record = context.getSingleConsumerRecord();
            return new ProducerRecord<>(answers, record.key(), Answering.answer(record, handler));
        });
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String servers, String group) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", servers, "group.id", group, "enable.auto.commit", false,
                        "auto.offset.reset", "earliest"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static KafkaProducer<byte[], byte[]> producer(String servers) {
        return new KafkaProducer<>(
                Map.of("bootstrap.servers", servers, "enable.idempotence", true),
                new ByteArraySerializer(), new ByteArraySerializer());
    }
}
