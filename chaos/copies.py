"""Requests that are in the topic more than once although their sender produced them once.

librdkafka's idempotent producer has stored a request twice while its leader changed, and reports one place only. A copy
is a request like any other: it has to be answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos import groups
from chaos.reading import whole_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.evidence import RecordId
    from chaos.requests import Item

Content = tuple[bytes | None, bytes | None]  # key and value


def stored(bootstrap: str, topic: str) -> dict[RecordId, Content]:
    """Return every request that is in the topic now."""
    records = whole_topic(bootstrap, topic, groups.partitions(bootstrap, topic))
    return {(record.partition(), record.offset()): (record.key(), record.value()) for record in records}


def found(
    topic: Mapping[RecordId, Content], sent: Mapping[RecordId, Item], unsure: Iterable[Item]
) -> dict[RecordId, Item]:
    """Return the requests at unknown places of the topic whose bytes are those of a sent or an ``unsure`` one."""
    known = {(item.key, item.value): item for item in (*sent.values(), *unsure)}
    return {record: known[content] for record, content in topic.items() if record not in sent and content in known}
