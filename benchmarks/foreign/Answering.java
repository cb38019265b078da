import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.WireFormat;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.time.Instant;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;

/** One task of a Java peer, from the bytes of a request to the bytes of its answer. */
final class Answering {
    private static final long PID = ProcessHandle.current().pid();
    private static volatile long sink; // the result of the additions is kept, or the compiler drops them

    private Answering() {}

    /** Reads the request, runs the task, and returns the contract's Response. */
    static byte[] answer(ConsumerRecord<byte[], byte[]> record, String handler) {
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
            if (handler.equals("spin")) {
                spin(cpu + (long) (Double.parseDouble(payload) * 1e9));
            } else if (handler.equals("rest")) {
                TimeUnit.NANOSECONDS.sleep((long) (Double.parseDouble(payload) * 1e9));
            }
            return response(sequence, record, started, Instant.now(), (cpuNanos() - cpu) / 1e9);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static long cpuNanos() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    /** Uses CPU time until this thread's CPU clock reaches {@code end}. Checks it every few microseconds. */
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
