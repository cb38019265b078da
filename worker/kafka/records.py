"""Converts the messages of a consumer to values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition, PartitionEnd, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name


class RecordReader:
    """Converts messages to records, and calls ``on_error`` for messages that carry an error of the client."""

    def __init__(self, on_error: Callable[[ck.KafkaError], None]) -> None:
        self._on_error = on_error
        self._partitions: dict[tuple[str, int], Partition] = {}  # one object per partition saves memory

    def read(self, messages: Iterable[Any]) -> list[Record | PartitionEnd]:
        """Return the messages as values. A message without an error has every field, although its type allows None."""
        records: list[Record | PartitionEnd] = []
        partitions = self._partitions
        for message in messages:
            place = message.topic(), message.partition()
            error = message.error()
            if error is not None and error.code() != _END:
                self._on_error(error)
                continue
            partition = partitions.get(place)
            if partition is None:
                partition = partitions[place] = Partition(*place)
            if error is not None:
                records.append(PartitionEnd(partition, message.offset()))
                continue
            headers = message.headers()
            records.append(
                Record(
                    partition,
                    message.offset(),
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else (),
                    message.timestamp()[1],
                )
            )
        return records
