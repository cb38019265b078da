import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.WireFormat;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.CommitMode;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Confluent's parallel-consumer doing the suite's tasks. Topics, group and broker come from the worker's variables. */
public class ParallelPeer {
    private static final long PID = ProcessHandle.current().pid();
    private static volatile long sink; // what the additions come to goes somewhere, or the compiler drops them

    public static void main(String[] arguments) {
        Map<String, String> environment = System.getenv();
        String servers = environment.get("KAFKA_BOOTSTRAP_SERVER");
        boolean spins = environment.get("BENCH_HANDLER").equals("spin");
        var options = ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(environment.get("BENCH_ORDER")))
                .maxConcurrency(Integer.parseInt(environment.get("BENCH_CONCURRENCY")))
                .commitMode(CommitMode.PERIODIC_CONSUMER_ASYNCHRONOUS)
                .commitInterval(Duration.ofMillis(100)) // 5 s by default: too coarse to be watched
                .consumer(consumer(servers, environment.get("KAFKA_CONSUMER_GROUP_ID")))
                .producer(producer(servers))
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        processor.subscribe(List.of(environment.get("KAFKA_REQUEST_TOPIC")));
        Runtime.getRuntime().addShutdownHook(new Thread(processor::close));
        String answers = environment.get("KAFKA_ACK_TOPIC");
        processor.pollAndProduce(context -> {
            ConsumerRecord<byte[], byte[]> record = context.getSingleConsumerRecord();
            return new ProducerRecord<>(answers, record.key(), answer(record, spins));
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

    /** Reads the request, does the task, and tells about it in the contract's Response. */
    private static byte[] answer(ConsumerRecord<byte[], byte[]> record, boolean spins) {
        try {
            int sequence = 0;
            String payload = "";
            CodedInputStream request = CodedInputStream.newInstance(record.value());
            for (int tag = request.readTag(); tag != 0; tag = request.readTag()) {
                switch (WireFormat.getTagFieldNumber(tag)) {
                    case 1 -> sequence = request.readInt32();
                    case 2 -> payload = request.readString();
                    default -> request.skipField(tag);
                }
            }
            Instant started = Instant.now();
            long cpu = cpuNanos();
            if (spins) {
                spin(cpu + (long) (Double.parseDouble(payload) * 1e9));
            }
            return response(sequence, record, started, Instant.now(), (cpuNanos() - cpu) / 1e9);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long cpuNanos() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /** Uses up CPU time of this thread until its clock shows {@code end}, looking every few microseconds. */
    private static void spin(long end) {
        long total = 0;
        while (cpuNanos() < end) {
            for (int number = 0; number < 5_000; number++) {
                total += number ^ total;
            }
        }
        sink = total;
    }

    private static byte[] response(
            int sequence, ConsumerRecord<byte[], byte[]> record, Instant started, Instant finished, double cpu)
            throws IOException {
        var bytes = new ByteArrayOutputStream(128);
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        out.writeInt32(1, sequence);
        out.writeBool(2, true);
        out.writeEnum(3, 1);
        out.writeBytes(6, message(origin -> {
            origin.writeString(1, record.topic());
            origin.writeInt32(2, record.partition());
            origin.writeInt64(3, record.offset());
        }));
        out.writeString(8, Long.toString(PID));
        out.writeBytes(9, timestamp(started));
        out.writeBytes(10, timestamp(finished));
        out.writeDouble(11, cpu);
        out.flush();
        return bytes.toByteArray();
    }

    private static ByteString timestamp(Instant moment) throws IOException {
        return message(out -> {
            out.writeInt64(1, moment.getEpochSecond());
            out.writeInt32(2, moment.getNano());
        });
    }

    private interface Fields {
        void write(CodedOutputStream out) throws IOException;
    }

    private static ByteString message(Fields fields) throws IOException {
        var bytes = new ByteArrayOutputStream(32);
        CodedOutputStream out = CodedOutputStream.newInstance(bytes);
        fields.write(out);
        out.flush();
        return ByteString.copyFrom(bytes.toByteArray());
    }
}
