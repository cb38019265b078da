"""Headers whose names are not UTF-8."""

from __future__ import annotations

import contextlib
import time

import confluent_kafka as ck

from tests.mock_cluster import TOPIC, MockCluster
from worker.core.model import Record
from worker.headers import UNREADABLE
from worker.kafka.records import RecordReader

LIMIT = 20.0  # seconds
COUNT = 300  # enough that the interpreter has optimized the call


def test_a_header_name_that_is_not_utf_8_is_marked_as_unreadable() -> None:
    """The client raises an error for such a record. The records after it are read."""
    with contextlib.closing(MockCluster()) as cluster:
        cluster.append(b"caf\xe9" if number in (1, COUNT - 2) else b"name" for number in range(COUNT))
        records = read(cluster, COUNT)
    assert [record.offset for record in records if record.headers == ((UNREADABLE, None),)] == [1, COUNT - 2]
    assert [record.headers for record in records].count((("name", b""),)) == COUNT - 2


def read(cluster: MockCluster, count: int) -> list[Record]:
    consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "group", "log_level": 0})
    consumer.assign([ck.TopicPartition(TOPIC, 0, 0)])
    reader, end = RecordReader(lambda _error: None), time.monotonic() + LIMIT
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < end
        records += [one for one in reader.read(consumer.consume(count, 0.5)) if isinstance(one, Record)]
    consumer.close()
    return records
