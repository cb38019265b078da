"""The suite's tasks in sentry-arroyo: a consumer, a pool of processes, a producer of answers, then the commit.

Runs in a separate environment: ``python -m benchmarks.foreign.arroyo_peer BATCH-SIZE BATCH-SECONDS PROCESSES``. The
worker's variables name topics, group and broker.
"""
# mypy: disable-error-code="import-not-found,misc"

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka.configuration import build_kafka_configuration, build_kafka_consumer_configuration
from arroyo.commit import CommitPolicy
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies.abstract import ProcessingStrategyFactory
from arroyo.processing.strategies.commit import CommitOffsets
from arroyo.processing.strategies.produce import Produce
from arroyo.processing.strategies.run_task_with_multiprocessing import MultiprocessingPool, RunTaskWithMultiprocessing
from arroyo.types import Topic

from benchmarks import handlers
from benchmarks.answering import answer_to

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT_SECONDS = 0.1  # the suite watches commits, and the documented 1 s is too coarse for it
STOP_SECONDS = 15.0
BLOCK = 32 * 1024 * 1024  # bytes of shared memory per batch, so that large payloads fit


def work(handler: str, message: Any) -> KafkaPayload:
    """Return the answer to a request, computed in a process of the pool."""
    (partition, offset), *_ = message.committable.items()
    value = answer_to(
        getattr(handlers, handler), message.payload.value, partition.topic.name, partition.index, offset - 1
    )
    return KafkaPayload(message.payload.key, value, [])


class Factory(ProcessingStrategyFactory):
    """A factory of the steps for each assignment. The pool stays the same."""

    def __init__(self, producer: KafkaProducer, batch_size: int, batch_seconds: float, processes: int) -> None:
        self._producer = producer
        self._batch_size = batch_size
        self._batch_seconds = batch_seconds
        self._pool = MultiprocessingPool(processes)

    def create_with_partitions(self, commit: Any, partitions: Mapping[Any, int]) -> Any:  # noqa: ARG002 - as it is called
        answers = Topic(os.environ["KAFKA_ACK_TOPIC"])
        return RunTaskWithMultiprocessing(
            functools.partial(work, os.environ["BENCH_HANDLER"]),
            Produce(self._producer, answers, CommitOffsets(commit)),
            max_batch_size=self._batch_size,
            max_batch_time=self._batch_seconds,
            pool=self._pool,
            input_block_size=BLOCK,
            output_block_size=BLOCK,
            prefetch_batches=True,
        )

    def shutdown(self) -> None:
        self._pool.close()


def main(batch_size: str, batch_seconds: str, processes: str) -> None:
    """Run until a signal to stop."""
    servers = [os.environ["KAFKA_BOOTSTRAP_SERVER"]]
    consumer = KafkaConsumer(
        build_kafka_consumer_configuration(
            {}, os.environ["KAFKA_CONSUMER_GROUP_ID"], auto_offset_reset="earliest", bootstrap_servers=servers
        )
    )
    producer = KafkaProducer(
        build_kafka_configuration(
            {"enable.idempotence": True, "partitioner": "murmur2_random"}, bootstrap_servers=servers
        )
    )
    processor = StreamProcessor(
        consumer,
        Topic(os.environ["KAFKA_REQUEST_TOPIC"]),
        Factory(producer, int(batch_size), float(batch_seconds), int(processes)),
        CommitPolicy(COMMIT_SECONDS, None),
        join_timeout=5,
    )

    def stop(*_: object) -> None:
        processor.signal_shutdown()
        # Without a broker, it would wait without limit. The process group is also that of its pool (see below).
        killing = threading.Timer(STOP_SECONDS, os.killpg, (0, signal.SIGKILL))
        killing.daemon = True
        killing.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    processor.run()


if __name__ == "__main__":
    os.setsid()
    main(*sys.argv[1:])
