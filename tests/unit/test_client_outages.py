"""The client's search for earlier answers, during an outage and at the last moment."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from tests.unit.foreign_answers import foreign
from worker.client.answers import Answers, value_of
from worker.client.book import Book
from worker.client.client import Client
from worker.client.futures import TaskFuture
from worker.client.ids import Origin, TaskId
from worker.codec import Response
from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka import client_consumer
from worker.kafka.descriptions import Span


class Silent(Answers):
    """Answers without Kafka."""

    def __init__(self, search: Any) -> None:
        self._stop = threading.Event()
        self.failure = None
        self._timeout = 0.1

        self._sought = queue.SimpleQueue()
        self.book = Book(10_000, time.time_ns() // 1_000_000)
        self.threads = [threading.Thread(target=self._guarded, args=(self._look_back,), daemon=True)]
        self._scan = search  # type: ignore[method-assign]
        for thread in self.threads:
            thread.start()


def test_an_answer_with_an_unknown_outcome_is_an_error() -> None:
    response = Response.FromString(foreign())
    assert isinstance(value_of(response, Origin("others", 0, 1)), Exception)


def test_a_search_waits_for_the_end_of_an_outage() -> None:
    outages = [True]

    def search(origins: list[Origin], since_ms: int) -> None:
        if outages and outages.pop():
            raise BrokerError("asking for offsets failed at Kafka: no answer within 10 s")
        for origin in origins:
            response = Response(isprocessed=True, outcome=1, result=b"x")  # type: ignore[arg-type]
            for future in answers.book.take(origin, response.SerializeToString()):
                future.answer(b"x")

    answers = Silent(search)
    (future,) = answers.find([TaskId(Origin("requests", 0, 1), 1000)])
    try:
        assert future.result(5) == b"x"
    finally:
        answers.close()


def test_result_does_not_report_an_earlier_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call has timed out. Its search failed later, in an outage that is over."""

    broken = threading.Event()
    calls = []

    def search(origins: list[Origin], since_ms: int) -> None:
        calls.append(1)
        if len(calls) == 1:
            broken.wait(5)
            raise BrokerError("searching for earlier answers failed: _TIMED_OUT")
        for origin in origins:
            for future in answers.book.take(origin, b"x"):
                future.answer(b"x")

    answers = Silent(search)
    client = Client.__new__(Client)

    client._lock, client._watched, client._answers, client._pid = threading.Lock(), OrderedDict(), answers, os.getpid()
    with pytest.raises(TimeoutError):
        client.result("requests~0~1~1000", 0.1)
    broken.set()
    time.sleep(0.3)
    try:
        assert client.result("requests~0~1~1000", 5) == b"x"
    finally:
        answers.close()


def test_an_unknown_start_offset_of_a_partition_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Consumer:
        def __init__(self, *_: object) -> None:
            pass

        def offsets_for_times(self, places: list[ck.TopicPartition], _timeout: float) -> list[Any]:
            return [
                SimpleNamespace(
                    topic=p.topic, partition=p.partition, offset=-1001, error=ck.KafkaError(ck.KafkaError._TRANSPORT)
                )
                for p in places
            ]

        def close(self) -> None:
            pass

    monkeypatch.setattr("worker.kafka.client_consumer.ck.Consumer", Consumer)
    with pytest.raises(BrokerError):
        client_consumer._starts({}, {Partition("answers", 0): Span(0, 10)}, 1000, 1.0)


def test_an_answer_at_the_last_moment_counts() -> None:

    class Late(TaskFuture):
        def result(self, timeout: float | None = None) -> bytes:
            if not self.done():
                self.answer(b"x")
                raise TimeoutError
            return super().result(timeout)

    client = Client.__new__(Client)
    client._lock, client._pid = threading.Lock(), os.getpid()
    client._watched = OrderedDict({"requests~0~1~1000": Late()})
    assert client.result("requests~0~1~1000", 0.1) == b"x"
