"""The state topic in a worker process: the replica's reader over a socket, and a producer. Poll thread only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.state.frames import Frame, Kind, RecordFrame, pack, text_of, unpack
from worker.state.port import Begin, CaughtUp, Pair
from worker.state.records import partition_of
from worker.state.sockets import Stream, connect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.model import Partition
    from worker.core.task_state import Origin
    from worker.kafka.ports import Deliveries
    from worker.kafka.producer import ConfluentProducer
    from worker.state.port import News

CONNECT_SECONDS = 0.2  # between two attempts to reach the reader


class KafkaStateTopic:
    """See ``worker.state.port.StateTopic``."""

    def __init__(self, name: str, address: str, topic: str, partitions: int, producer: ConfluentProducer) -> None:
        """``producer`` should be created with the process, because its first record takes half a second from then."""
        self._name = name
        self._address = address
        self._topic = topic
        self._partitions = partitions
        self._producer = producer
        self._stream: Stream | None = None
        self._connect_at = 0.0
        self._following: dict[Partition, int] = {}

    # -- reading

    def follow(self, place: Partition, number: int) -> None:
        """See ``StateTopic``."""
        self._following[place] = number
        self._send(Frame(Kind.FOLLOW, text_of(place), number))

    def unfollow(self, place: Partition) -> None:
        """See ``StateTopic``."""
        self._following.pop(place, None)
        self._send(Frame(Kind.UNFOLLOW, text_of(place)))

    def receive(self) -> Sequence[News]:
        """See ``StateTopic``. A reader that was started again sends everything again."""
        stream = self._stream or self._connect()
        if stream is None:
            return ()
        stream.serve()
        news = [_news(frame) for frame in unpack(stream.received)]
        if stream.ended:
            stream.close()
            self._stream = None
        return news

    def _connect(self) -> Stream | None:
        now = time.monotonic()
        if now < self._connect_at or not self._following:
            return None
        self._connect_at = now + CONNECT_SECONDS
        connection = connect(self._address)
        if connection is None:
            return None
        self._stream = Stream(connection)
        self._send(Frame(Kind.HELLO, self._name))
        for place, number in self._following.items():
            self._send(Frame(Kind.FOLLOW, text_of(place), number))
        return self._stream

    def _send(self, frame: Frame) -> None:
        if self._stream is not None:
            self._stream.send(pack(frame))

    # -- writing

    def write(self, origin: Origin, key: bytes, value: bytes | None, token: object) -> None:
        """See ``StateTopic``."""
        number = partition_of(origin, self._partitions)
        self._producer.produce(self._topic, key, value, (), token, partition=number)

    def written(self) -> Deliveries:
        """See ``StateTopic``. Raises ``ClientFatalError`` when the client cannot continue."""
        return self._producer.deliveries(0)

    def close(self) -> None:
        """See ``StateTopic``."""
        self._producer.close()
        if self._stream is not None:
            self._stream.close()


def _news(frame: Frame | RecordFrame) -> News:
    if isinstance(frame, RecordFrame):
        return Pair(frame.key, frame.value)
    return Begin(frame.place) if frame.kind is Kind.BEGIN else CaughtUp(frame.place, frame.number)
