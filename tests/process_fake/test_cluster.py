"""The in-memory cluster for users' tests: whole worker processes with real handlers, and no broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from worker.errors import ExitCode, Retry
from worker.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

GUARANTEES = ("at-least-once", "at-most-once", "exactly-once")
LONG = 30.0  # seconds; only a test that fails waits that long


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(partitions=2) as one:
        yield one


def echo(request: Any, _context: object) -> str:
    return str(request.payload)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_every_request_has_its_answer(cluster: Cluster, guarantee: str) -> None:
    cluster.start(echo, guarantee=guarantee)
    origins = [cluster.submit(f"p{n}", key=bytes([n])) for n in range(20)]
    answers = cluster.answers()
    assert [(one.outcome, one.result, one.origin) for one in answers] == [
        ("OK", f"p{n}".encode(), origin) for n, origin in enumerate(origins)
    ]
    cluster.until(lambda: cluster.committed(0) + cluster.committed(1) == 20)


def test_retries_wait_on_the_clusters_clock(cluster: Cluster) -> None:
    """Minutes take no real time. The attempts are counted, and the last failure makes a dead letter."""
    attempts: list[int] = []

    def handler(_request: object, context: Any) -> None:
        attempts.append(context.attempt)
        raise Retry(after=120)

    cluster.start(handler, max_attempts=3)
    cluster.submit("p", key=b"k", headers=[("h", b"1")])
    before, began = cluster.clock(), time.monotonic()
    (answer,) = cluster.answers()
    assert time.monotonic() - began < 120
    assert cluster.clock() - before >= 240
    assert attempts == [1, 2, 3]
    assert (answer.outcome, answer.error_type, answer.attempt) == ("DEAD_LETTERED", "Retry", 3)
    (record,) = cluster.dead_letters()
    assert (record.key, record.headers[0]) == (b"k", ("h", b"1"))


@pytest.mark.parametrize(
    ("ordering", "order"), [("key", ["a1", "b", "a1", "a2"]), ("partition", ["a1", "a1", "a2", "b"])]
)
def test_a_retry_delays_only_its_ordering_group(cluster: Cluster, ordering: str, order: list[str]) -> None:
    """The group is the rest of its key, or the rest of its partition."""
    started: list[str] = []

    def handler(request: Any, context: Any) -> None:
        started.append(request.payload)
        if request.payload == "a1" and context.attempt == 1:
            raise Retry(after=60)

    for payload, key in (("a1", b"a"), ("a2", b"a"), ("b", b"b")):
        cluster.submit(payload, key=key, partition=0)
    cluster.start(handler, ordering=ordering)
    cluster.answers()
    assert started == order


def test_a_cancelled_task_runs_again_in_another_process(cluster: Cluster) -> None:
    running = threading.Event()

    def stubborn(_request: object, context: Any) -> None:
        running.set()
        assert context.cancelled.wait(LONG)
        context.cancelled.raise_if_set()

    process = cluster.start(stubborn)
    cluster.submit("p")
    cluster.until(running.is_set)
    process.cancel()
    cluster.until(lambda: process.ended)
    assert process.exit_code is ExitCode.DRAIN_TIMED_OUT
    cluster.start(echo)
    assert [(one.outcome, one.attempt) for one in cluster.answers()] == [("OK", 1)]


def test_a_drain_lets_the_running_task_finish(cluster: Cluster) -> None:
    process = cluster.start(lambda *_: process.drain())
    cluster.submit("first", partition=0)
    cluster.submit("second", partition=0)
    cluster.until(lambda: process.ended)
    assert process.exit_code is ExitCode.DRAINED
    assert [one.sequence for one in cluster.answers(1)] == [1]


def test_two_processes_share_the_partitions(cluster: Cluster) -> None:
    workers: set[str] = set()

    def named(name: str) -> Any:
        return lambda *_: workers.add(name)

    for name in ("one", "two"):
        cluster.start(named(name))
    cluster.sleep(10)
    for partition in (0, 1):
        cluster.submit("p", partition=partition)
    assert len(cluster.answers()) == 2
    assert workers == {"one", "two"}


def test_batches_reach_the_handler_whole(cluster: Cluster) -> None:
    sizes: list[int] = []

    def handler(batch: Any, _context: object) -> None:
        sizes.append(len(batch))
        for task in batch:
            batch.ack(task, task.payload)

    for n in range(4):
        cluster.submit(f"p{n}", partition=0)
    cluster.start(handler, batch_size=4)
    assert [one.result for one in cluster.answers()] == [b"p0", b"p1", b"p2", b"p3"]
    assert max(sizes) > 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("heeds", [True, False])
def test_a_request_of_a_running_batch_is_cancelled(cluster: Cluster, guarantee: str, heeds: bool) -> None:
    """Only this request is cancelled. It does not start again, whether the handler refuses or acknowledges it."""
    starts: list[int] = []
    waiting: list[int] = []

    def handler(batch: Any, _context: object) -> None:
        starts.extend(task.origin.offset for task in batch)
        if not waiting:
            waiting.append(batch[-1].origin.offset)
            assert batch[-1].cancelled.wait(LONG)
        for task in batch:
            if heeds and task.cancelled:
                batch.nack(task, "cancelled")
            else:
                batch.ack(task)

    origins = [cluster.submit(f"p{n}", partition=0) for n in range(4)]
    cluster.start(handler, batch_size=4, guarantee=guarantee)
    cluster.until(lambda: waiting)
    cluster.cancel(origins[waiting[0]])
    outcomes = [one.outcome for one in cluster.answers()]
    assert outcomes == ["CANCELLED" if at == waiting[0] else "OK" for at in range(4)]
    cluster.sleep(5)
    assert starts == [0, 1, 2, 3]
    assert cluster.dead_letters() == []


def test_a_deadline_expires_a_request(cluster: Cluster) -> None:
    cluster.submit("p", deadline=1.0)
    cluster.start(echo)
    assert [one.outcome for one in cluster.answers()] == ["EXPIRED"]


def test_missing_answers_raise_an_error_that_says_how_many_there_are(cluster: Cluster) -> None:
    """Without a worker process no request is answered."""
    cluster.submit("p")
    with pytest.raises(TimeoutError, match="0 of 1 requests are answered"):
        cluster.answers(timeout=0.05)


def test_the_error_that_ends_a_process_is_raised(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    process = cluster.start(echo)
    monkeypatch.setattr(process._loop, "turn", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cluster.until(lambda: False)
