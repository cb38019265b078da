"""Converts the messages of a consumer to values."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition, PartitionEnd, Record
from worker.headers import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from worker.core.model import Headers

# Not a plain call: the interpreter may run that in a fast way which overlooks an error that the client does not signal.
_read_headers = operator.methodcaller("headers")
_END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant of the client in spite of its name


def headers_of(message: Any) -> Headers:
    """Return the headers of a message, or one named ``UNREADABLE`` if a name is not UTF-8. Call it once per message.

    confluent-kafka 2.16 returns a list with a gap for such a name, together with an exception, and raises no exception
    the second time.
    """
    try:
        headers = _read_headers(message)
    except (SystemError, UnicodeDecodeError):
        return ((UNREADABLE, None),)
    return tuple(headers) if headers else ()


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
            records.append(
                Record(
                    partition,
                    message.offset(),
                    message.key(),
                    message.value(),
                    headers_of(message),
                    message.timestamp()[1],
                )
            )
        return records
