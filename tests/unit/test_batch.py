"""Handlers of batches: their arguments, and the outcome of each request."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.support import PARTITION, Watch, a_task
from worker.core.lease import Lease
from worker.core.model import Failure, FollowUp, Verdict
from worker.errors import Reject, Retry
from worker.handlers import batch as batch_module
from worker.handlers.batch import Batch, BatchContext, BatchRunner
from worker.handlers.judging import MESSAGE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Headers, Outcome, Task

LEASE = Lease(PARTITION)


def tasks(count: int, **more: Any) -> list[Task]:
    return [a_task(offset=number, lease=LEASE, **more) for number in range(count)]


def run(handler: Callable[..., Any], of: list[Task], **kwargs: Any) -> list[Outcome]:
    """Run a batch of these tasks, and return the outcomes in the order of their reports."""
    posted: list[Outcome] = []
    BatchRunner(handler, kwargs, 3, posted.append).run(of)
    return posted


def settled(outcomes: list[Outcome]) -> list[tuple[int, Verdict]]:
    return [(outcome.task.record.offset, outcome.verdict) for outcome in outcomes]


# ---------------------------------------------------------------- the arguments of the handler


def test_a_batch_is_a_sequence_of_requests() -> None:
    def handler(batch: Batch, context: BatchContext, *, extra: int) -> None:
        assert (len(batch), extra, context.remaining, context.transaction) == (3, 7, None, None)
        assert [task.origin.offset for task in batch] == [0, 1, 2]
        assert batch[-1] is list(batch)[2]
        first = batch[0]
        assert (first.sequence, first.payload, first.request.payload, first.attempt) == (7, "x", "x", 1)
        with pytest.raises(RuntimeError, match="cannot report progress: set WORKER_BATCH_SIZE=1"):
            first.progress(0.5)
        with pytest.raises(RuntimeError, match="cannot save checkpoints: set WORKER_BATCH_SIZE=1"):
            first.checkpoint(b"1")
        for task in batch:
            batch.ack(task)

    assert settled(run(handler, tasks(3), extra=7)) == [(n, Verdict.OK) for n in range(3)]


def test_the_earliest_deadline_applies_to_the_batch() -> None:
    def limits(seconds: float) -> Headers:
        return (("x-deadline", str(time.time() + seconds).encode()),)

    def handler(batch: Batch, context: BatchContext) -> None:
        assert context.remaining is not None
        assert 900 < context.remaining <= 1_000
        assert [task.remaining is None for task in batch] == [False, False, True]
        for task in batch:
            batch.ack(task)

    row = [a_task(offset=n, lease=LEASE, headers=limits(s)) for n, s in enumerate((5_000, 1_000))]
    assert len(run(handler, [*row, a_task(offset=2, lease=LEASE)])) == 3


def test_requests_that_cannot_start_do_not_reach_the_handler() -> None:
    def handler(batch: Batch, _context: BatchContext) -> None:
        assert [task.origin.offset for task in batch] == [3]
        batch.ack(batch[0])

    row = [
        a_task(b"\xff", offset=0, lease=LEASE),
        a_task(offset=1, lease=LEASE, headers=(("x-deadline", b"1"),)),
        a_task(offset=2, lease=LEASE, attempt=3),
        a_task(offset=3, lease=LEASE),
    ]
    expected = [(0, Verdict.REJECTED), (1, Verdict.EXPIRED), (2, Verdict.REJECTED), (3, Verdict.OK)]
    assert settled(run(handler, row)) == expected


def test_the_handler_is_not_called_with_an_empty_batch() -> None:
    def handler(_batch: Batch, _context: BatchContext) -> None:
        raise AssertionError

    assert settled(run(handler, [a_task(None, offset=0, lease=LEASE)])) == [(0, Verdict.REJECTED)]


def test_one_task_of_a_batch_can_be_cancelled() -> None:
    """The other tasks continue. A task that is acknowledged, or not in the batch, is not cancelled."""

    def handler(batch: Batch, context: BatchContext) -> None:
        batch.ack(batch[0])
        stopped = [runner.cancel_one("requested", one) for one in (row[0], row[1], a_task(offset=1, lease=LEASE))]
        assert stopped == [False, True, False]
        assert [one.cancelled.reason for one in (context, *batch)] == [None, None, "requested", None]
        batch.ack(batch[2])

    row = tasks(3)
    posted: list[Outcome] = []
    runner = BatchRunner(handler, {}, 3, posted.append)
    assert not runner.cancel_one("requested", row[0])
    runner.run(row)
    assert settled(posted) == [(0, Verdict.OK), (2, Verdict.OK), (1, Verdict.FAILED)]


# ---------------------------------------------------------------- the outcomes


def test_a_reason_without_utf8_is_written_with_escapes() -> None:
    """Otherwise the answer could not be encoded, and the process would end."""
    posted: list[Outcome] = []
    BatchRunner(lambda batch, _context: batch.nack(batch[0], "a\ud800"), {}, 3, posted.append).run(tasks(1))
    assert posted[0].failure == ("Nack", "a\\ud800", "")


def test_a_reason_without_a_text_refuses_the_request() -> None:
    """Without an outcome, its partition would stand still."""

    class Unreadable:
        def __str__(self) -> str:
            raise RuntimeError

    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.nack(batch[0], Unreadable())  # type: ignore[arg-type]
        batch.nack(batch[1], "x" * (MESSAGE_LIMIT + 1))

    first, second = run(handler, tasks(2))
    assert first.failure == Failure("Nack", "(its message cannot be shown)")
    assert second.failure == Failure("Nack", "x" * MESSAGE_LIMIT)
    assert first.verdict is second.verdict is Verdict.FAILED


def test_the_outcome_of_a_request_is_reported_before_the_batch_ends() -> None:
    posted: list[Outcome] = []

    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.ack(batch[1], "b")
        assert [(outcome.task.record.offset, outcome.result) for outcome in posted] == [(1, b"b")]
        batch.nack(batch[0], "no")
        assert posted[1].failure is not None
        assert posted[1].failure[:2] == ("Nack", "no")

    BatchRunner(handler, {}, 3, posted.append).run(tasks(3))
    assert settled(posted) == [(1, Verdict.OK), (0, Verdict.FAILED), (2, Verdict.FAILED)]
    assert posted[2].failure is not None
    assert posted[2].failure.type == "NotSettled"
    assert [outcome.task.attempt for outcome in posted] == [1, 1, 1]


@pytest.mark.parametrize(
    ("error", "verdict", "after"),
    [
        (ValueError("as told"), Verdict.FAILED, None),
        (Retry("later", after=5), Verdict.FAILED, 5.0),
        (Reject("never"), Verdict.REJECTED, None),
        (SystemExit(3), Verdict.FAILED, None),
    ],
)
def test_an_exception_applies_to_all_requests_without_an_outcome(
    error: BaseException, verdict: Verdict, after: float | None
) -> None:
    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.ack(batch[1])
        raise error

    outcomes = run(handler, tasks(3))
    assert settled(outcomes) == [(1, Verdict.OK), (0, verdict), (2, verdict)]
    assert [outcome.retry_after for outcome in outcomes[1:]] == [after, after]


@pytest.mark.parametrize("reason", ["revoked", "drain"])
def test_a_nack_after_a_drain_or_a_revocation_uses_up_no_attempt(reason: Any) -> None:
    def handler(batch: Batch, context: BatchContext) -> None:
        batch.nack(batch[0])
        runner.cancel(reason, batch[0].task)
        assert context.cancelled.reason == reason
        batch.nack(batch[1])

    posted: list[Outcome] = []
    runner = BatchRunner(handler, {}, 3, posted.append)
    runner.run(tasks(2))
    assert settled(posted) == [(0, Verdict.FAILED), (1, Verdict.DROPPED)]


@pytest.mark.parametrize("reason", ["revoked", "drain"])
def test_tasks_without_an_outcome_in_a_cancelled_batch_use_up_no_attempt(reason: Any) -> None:
    runner: BatchRunner

    def handler(batch: Batch, context: BatchContext) -> None:
        runner.cancel(reason, a_task(offset=1))  # of another batch
        assert not context.cancelled
        assert list(runner.open_tasks()) == [member.task for member in batch]
        runner.cancel(reason, batch[1].task)
        assert {one.cancelled.reason for one in (context, *batch)} == {reason}
        batch.ack(batch[1])
        assert list(runner.open_tasks()) == [batch[0].task, batch[2].task]
        raise RuntimeError

    posted: list[Outcome] = []
    runner = BatchRunner(handler, {}, 3, posted.append)
    runner.run(tasks(3))
    assert settled(posted) == [(1, Verdict.OK), (0, Verdict.DROPPED), (2, Verdict.DROPPED)]
    assert runner.current is None
    assert not runner.open_tasks()
    runner.cancel(reason, posted[0].task)


@pytest.mark.parametrize("result", [7, "\ud800", object()])
def test_an_invalid_result_fails_only_its_request(result: Any) -> None:
    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.ack(batch[0], result)
        batch.ack(batch[1], b"good")

    bad, good = run(handler, tasks(2))
    assert bad.verdict in (Verdict.FAILED, Verdict.REJECTED)
    assert (good.verdict, good.result) == (Verdict.OK, b"good")


# ---------------------------------------------------------------- requests that cannot be acknowledged


def test_a_request_cannot_be_acknowledged_twice_or_by_another_batch() -> None:
    kept: list[Batch] = []

    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.ack(batch[0])
        for settle in (batch.ack, batch.nack):
            with pytest.raises(ValueError, match=r"requests.*already acknowledged"):
                settle(batch[0])
            if kept:
                with pytest.raises(ValueError, match="does not belong to this batch"):
                    settle(kept[0][0])
        kept.append(batch)

    first = run(handler, tasks(2))
    second = run(handler, tasks(2))
    for outcomes in (first, second):
        assert settled(outcomes) == [(0, Verdict.OK), (1, Verdict.FAILED)]
    with pytest.raises(ValueError, match="already acknowledged"):
        kept[0].ack(kept[0][1], "too late")
    assert len(first) == 2


@pytest.mark.parametrize("what", [None, 0, "x", [], object()])
def test_an_object_that_is_not_a_request_cannot_be_acknowledged(what: Any) -> None:
    def handler(batch: Batch, _context: BatchContext) -> None:
        with pytest.raises((TypeError, ValueError, AttributeError)):
            batch.ack(what)
        batch.ack(batch[0])

    assert settled(run(handler, tasks(1))) == [(0, Verdict.OK)]


def test_only_one_of_several_threads_can_acknowledge_a_request() -> None:
    count, at_once = 200, 4
    refused: list[int] = []

    def handler(batch: Batch, _context: BatchContext) -> None:
        ready = threading.Barrier(at_once)

        def settle_all() -> None:
            ready.wait()
            for task in batch:
                try:
                    batch.ack(task)
                except ValueError:
                    refused.append(1)

        threads = [threading.Thread(target=settle_all) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    outcomes = run(handler, tasks(count))
    assert sorted(settled(outcomes)) == sorted((n, Verdict.OK) for n in range(count))
    assert len(refused) == count * (at_once - 1)


def test_the_times_of_the_requests_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a request begins when the previous one is acknowledged."""
    watch = Watch()
    monkeypatch.setattr(batch_module, "time", watch)

    def handler(batch: Batch, _context: BatchContext) -> None:
        for seconds, task in enumerate(batch, 1):
            watch.work(seconds)
            watch.sleep(0.5)
            batch.ack(task)

    outcomes = run(handler, tasks(3))
    assert [outcome.run_seconds for outcome in outcomes] == [1.5, 2.5, 3.5]
    assert [outcome.cpu_seconds for outcome in outcomes] == [1.0, 2.0, 3.0]
    assert [(o.finished_ns - o.started_ns) / 1e9 for o in outcomes] == [1.5, 2.5, 3.5]


def test_a_follow_up_request_belongs_to_a_task_of_the_batch() -> None:
    """It is sent with the answer to that task, but not if the task fails or is not acknowledged."""

    def handler(batch: Batch, _context: BatchContext) -> None:
        for task in batch:
            task.send(f"after {task.origin.offset}")
        batch.ack(batch[0])
        batch.nack(batch[1])
        batch.ack(batch[2], object())  # type: ignore[arg-type]

    outcomes = run(handler, tasks(4))
    assert [outcome.sent for outcome in sorted(outcomes, key=lambda one: one.task.record.offset)] == [
        (FollowUp(None, None, "after 0"),),
        (),
        (),
        (),
    ]


def test_an_acknowledged_task_cannot_send_a_follow_up_request() -> None:
    def handler(batch: Batch, _context: BatchContext) -> None:
        batch.ack(batch[0])
        with pytest.raises(RuntimeError):
            batch[0].send("late")

    run(handler, tasks(1))
