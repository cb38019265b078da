"""Determines where a new partition begins: at the group's committed offset, or according to ``auto.offset.reset``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import confluent_kafka as ck
import structlog

from worker.core.model import Partition
from worker.errors import ClientFatalError
from worker.kafka.clients import failure_of, without_offsets
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.kafka.ports import KafkaFailure

log = structlog.get_logger("kafka")
TOPIC_SECONDS = 2.0  # for a topic's metadata
COMMITTED_SECONDS = 1.0  # for one request for committed offsets, during which the poll thread waits


def fetch_committed(client: ck.Consumer, partitions: Sequence[Partition]) -> dict[Partition, Position | None] | None:
    """Return what the group has committed; None while the coordinator is away or a transaction is undecided.

    Wait at most ``COMMITTED_SECONDS``, on the poll thread.
    """
    try:
        answered = client.committed(without_offsets(partitions), COMMITTED_SECONDS)
    except ck.KafkaException as error:
        _log(failure_of(error.args[0]))
        return None
    failed = [failure_of(position.error) for position in answered if position.error]
    if failed:
        _log(failed[0])
        return None
    return {
        Partition(p.topic, p.partition): Position(p.offset, p.metadata or "") if p.offset >= 0 else None
        for p in answered
    }


def _log(failure: KafkaFailure) -> None:
    log.warning("client.error", code=failure.code, reason=failure.message)


def is_known(client: ck.Consumer, topic: str) -> bool:
    """Return whether a topic exists. Afterwards the client has it in its cache. Poll thread, outside of callbacks.

    A classic member that subscribes to a topic outside its cache may take its partitions for lost and never join again.
    """
    try:
        found = client.list_topics(topic, TOPIC_SECONDS).topics.get(topic)
    except ck.KafkaException as error:
        _log(failure_of(error.args[0]))
        return False
    return found is not None and found.error is None and bool(found.partitions)


def reset_offset(rule: str) -> int:
    """Return where a partition without a committed offset begins. ``rule`` is the value of ``auto.offset.reset``.

    Raise ``ClientFatalError`` if the rule requires a committed offset.
    """
    rule = rule.strip().lower()  # as librdkafka reads it
    if rule in ("earliest", "smallest", "beginning"):
        return ck.OFFSET_BEGINNING
    if rule in ("latest", "largest", "end"):
        return ck.OFFSET_END
    raise ClientFatalError("a partition has no committed offset, and auto.offset.reset=error")
