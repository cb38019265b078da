"""``worker.Client``: requests and their results. A real worker answers, or the test does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime as dt
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import admin

import worker
from tests.kafka.support.clients import WAIT_LIMIT, answer
from tests.kafka.support.messages import message
from tests.kafka.support.murmur2 import partition_of
from tests.kafka.support.replica import HANDLERS, ROOT
from tests.kafka.support.topics import reading
from worker.client import DeliveryError, answers
from worker.client.ids import TaskId
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.support.site import Site
    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka
MANY = 10_000
_admin: Any = admin


@pytest.fixture
def client(running: Site) -> Iterator[worker.Client]:
    with worker.Client(running.environment) as made:
        yield made


# ---------------------------------------------------------------- many


def test_threads_submit_ten_thousand_requests(client: worker.Client) -> None:
    """Four threads submit. Each future gets the result of its request."""

    def submit(thread: int) -> dict[str, concurrent.futures.Future[bytes]]:
        return {text: client.submit(text) for number in range(MANY // 4) if (text := f"{thread}/{number}")}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        futures = {text: future for part in pool.map(submit, range(4)) for text, future in part.items()}

    assert len(futures) == MANY
    assert {text for text, future in futures.items() if future.result(WAIT_LIMIT) != text.encode()} == set()


def test_asyncio_submits_ten_thousand_requests(client: worker.Client) -> None:
    texts = [str(number) for number in range(MANY)]

    async def everything() -> list[bytes]:
        return await asyncio.wait_for(asyncio.gather(*map(client.asubmit, texts)), WAIT_LIMIT)

    assert asyncio.run(everything()) == [text.encode() for text in texts]


def test_asyncio_makes_a_task_of_a_submitted_request(client: worker.Client) -> None:
    async def submit() -> list[bytes]:
        tasks = [asyncio.create_task(client.asubmit(text)) for text in ("a", "b")]
        return [await asyncio.wait_for(task, WAIT_LIMIT) for task in tasks]

    assert asyncio.run(submit()) == [b"a", b"b"]


def test_another_client_gets_the_results_of_a_killed_client_by_their_ids(running: Site) -> None:
    """The client gets SIGKILL while it submits, with hundreds unanswered. Each id leads to a result with one answer."""
    with killed_after(running, MANY // 2) as lines:
        ids = dict(line.split() for line in lines)

    with worker.Client(running.environment) as resumed:
        half = len(ids) // 2
        futures = resumed.resume(list(ids.values())[:half])
        results = [future.result(WAIT_LIMIT) for future in futures]
        results += [resumed.result(task_id, WAIT_LIMIT) for task_id in list(ids.values())[half:]]

    assert results == [payload.encode() for payload in ids]
    wanted = {tuple[str, int, int](TaskId.parse(task_id).origin) for task_id in ids.values()}
    with reading(running.bootstrap, running.ack, running.answer_partitions) as reader:
        counts = Counter(one.origin for one in reader.read_all())
    assert {origin: counts[origin] for origin in wanted} == dict.fromkeys(wanted, 1)


@contextlib.contextmanager
def killed_after(site: Site, count: int) -> Iterator[list[str]]:
    """Kill a program that submits, after it has printed ``count`` lines. Yield all complete lines."""
    program = subprocess.Popen(
        [sys.executable, HANDLERS / "submitter.py"],
        env={**os.environ, **site.environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(count)]
    program.kill()
    lines += program.communicate()[0].splitlines(keepends=True)
    assert program.returncode < 0
    yield [line for line in lines if line.endswith("\n")]


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("arguments", "outcome", "error"),
    [
        ({"payload": '{"do": "fail", "text": "no good"}'}, "DEAD_LETTERED", ("ValueError", "no good")),
        ({"payload": '{"do": "fail", "kind": "Reject", "text": "never"}'}, "DEAD_LETTERED", ("Reject", "never")),
        ({"payload": "late", "deadline": 1.0}, "EXPIRED", None),
        ({"payload": "late", "deadline": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "EXPIRED", None),
    ],
)
def test_an_answer_without_a_result_raises(
    client: worker.Client, arguments: dict[str, Any], outcome: str, error: tuple[str, str] | None
) -> None:
    future = client.submit(**arguments)

    with pytest.raises(worker.TaskFailed) as caught:
        future.result(WAIT_LIMIT)

    assert caught.value.outcome == outcome
    assert caught.value.origin == TaskId.parse(future.id).origin
    if error is not None:
        assert (caught.value.error_type, caught.value.message) == error
    with pytest.raises(worker.TaskFailed):
        client.result(future.id, WAIT_LIMIT)


def test_an_answer_without_a_result_raises_in_asyncio(client: worker.Client) -> None:
    async def fail() -> None:
        await client.asubmit('{"do": "fail"}')

    with pytest.raises(worker.TaskFailed, match="DEAD_LETTERED: ValueError: as told"):
        asyncio.run(fail())


def test_the_id_is_known_before_the_answer_in_asyncio(quiet: Site) -> None:
    async def identify(client: worker.Client) -> tuple[str, bytes]:
        future = client.asubmit("x")
        with pytest.raises(asyncio.InvalidStateError, match="is not confirmed yet"):
            _ = future.id
        task_id = await future.delivered()
        await asyncio.to_thread(answer, quiet, task_id)
        return future.id, await asyncio.wait_for(future, WAIT_LIMIT)

    with worker.Client(quiet.environment) as client:
        task_id, result = asyncio.run(identify(client))

    assert TaskId.parse(task_id).origin[0] == quiet.requests
    assert result == b"done"


def test_the_result_of_an_unanswered_request_raises_a_timeout_error(quiet: Site) -> None:
    """After the answer, the call returns the result, also in another client, and for an id written as an origin."""
    with worker.Client(quiet.environment) as first, worker.Client(quiet.environment) as second:
        task_id = first.submit("x").id
        for client in (first, second):
            with pytest.raises(TimeoutError, match="no answer to"):
                client.result(task_id, 0.2)
        answer(quiet, task_id)
        origin = str(TaskId.parse(task_id).origin)
        assert [client.result(name, WAIT_LIMIT) for client in (first, second) for name in (task_id, origin)] == [
            b"done"
        ] * 4


def test_only_committed_answers_count(quiet: Site) -> None:
    with worker.Client(quiet.environment) as client:
        future = client.submit("x")
        answer(quiet, future.id, b"undone", transaction=quiet.group).abort_transaction(WAIT_LIMIT)
        answer(quiet, future.id, b"done")

        assert future.result(WAIT_LIMIT) == b"done"


def test_the_first_answer_counts(quiet: Site) -> None:
    with worker.Client(quiet.environment) as client:
        future = client.submit("x")
        answer(quiet, future.id, b"first")
        answer(quiet, future.id, b"second")

        assert future.result(WAIT_LIMIT) == b"first"
    with worker.Client(quiet.environment) as later:
        assert later.result(future.id, WAIT_LIMIT) == b"first"


def test_answers_in_a_new_partition_are_read(quiet: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_NEW_PARTITIONS", 0.2)
    with worker.Client(quiet.environment) as client:
        future = client.submit("x")
        administrator = _admin.AdminClient({"bootstrap.servers": quiet.bootstrap})
        administrator.create_partitions([_admin.NewPartitions(quiet.ack, 3)])[quiet.ack].result(WAIT_LIMIT)
        answer(quiet, future.id, partition=2)

        assert future.result(WAIT_LIMIT) == b"done"


# ---------------------------------------------------------------- the request


def test_submit_writes_payload_key_headers_and_limits(quiet: Site) -> None:
    """The record is in the partition that Kafka's Java clients choose for the key."""
    with worker.Client(quiet.environment) as client:
        task_id = client.submit("hello", key="k", deadline=1e10, timeout=2.5, headers=[("a", "b"), ("c", None)]).id
    _, partition, offset = TaskId.parse(task_id).origin

    with reading(quiet.bootstrap, quiet.requests, 2) as reader:
        (record,) = reader.read_all()
    request = message("Request").FromString(record.value)

    assert (record.partition, record.offset, record.key) == (partition, offset, b"k")
    assert partition == partition_of(b"k", 2)
    assert (request.payload, request.sequence) == ("hello", 1)
    assert dict(record.headers) == {"a": b"b", "c": None, "x-deadline": b"10000000000.000", "x-timeout": b"2.500"}


def test_a_request_that_kafka_refuses_raises_a_delivery_error(broker: Broker, site: Callable[..., Site]) -> None:
    """Both the future and its id raise it. Its text is one line. Other requests are not affected."""
    quiet = site()
    small = broker.topic(config={"max.message.bytes": "20000"})
    with worker.Client({**quiet.environment, "KAFKA_REQUEST_TOPIC": small}) as client:
        large, good = client.submit("x" * 30_000), client.submit("x")

        with pytest.raises(DeliveryError, match="MSG_SIZE_TOO_LARGE") as caught:
            large.result(WAIT_LIMIT)
        with pytest.raises(DeliveryError):
            _ = large.id
        assert good.id.startswith(small)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["KAFKA_REQUEST_TOPIC", "KAFKA_ACK_TOPIC"])
def test_a_missing_topic_is_named(quiet: Site, name: str) -> None:
    with pytest.raises(BrokerError, match="there is no topic 'misspelt'"):
        worker.Client({**quiet.environment, name: "misspelt"})


def test_a_client_without_a_broker_raises_a_broker_error(quiet: Site) -> None:
    environment = {**quiet.environment, "KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1", "KAFKA_CONNECT_TIMEOUT": "1s"}

    with pytest.raises(BrokerError, match="Connection refused"):
        worker.Client(environment)
