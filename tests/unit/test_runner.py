"""Whatever a handler does, one outcome comes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.support import a_task
from worker.codec import AnswerEncoder, decode_response
from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Reject, Retry
from worker.handlers.judging import MESSAGE_LIMIT, TRACEBACK_LIMIT
from worker.handlers.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Task
    from worker.handlers.context import Context

ROOT = Path(__file__).parents[2]


def run(handler: Callable[..., Any], task: Task | None = None, **kwargs: Any) -> Outcome:
    runner = Runner(handler, kwargs, 3)
    runner.begin()
    return runner.run(task or a_task())


def raising(error: BaseException) -> Outcome:
    def handler(_request: object, _context: object) -> None:
        raise error

    return run(handler)


# ---------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("ключ", "ключ".encode()),
        (b"\x00\xff", b"\x00\xff"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (None, b""),
        ("", b""),
    ],
)
def test_what_is_returned_is_the_result(returned: object, result: bytes) -> None:
    """str as UTF-8, bytes as they are, None as empty."""
    outcome = run(lambda _request, _context: returned)
    assert (outcome.verdict, outcome.result, outcome.failure) == (Verdict.OK, result, None)


@pytest.mark.parametrize("returned", [0, 1.5, {"a": 1}, ["x"], object(), True])
def test_another_kind_of_result_can_never_succeed(returned: object) -> None:
    """Repeating hours of work would not change what the function returns."""
    outcome = run(lambda _request, _context: returned)
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert f"returned {type(returned).__name__}" in outcome.failure.message


def test_a_text_that_has_no_utf8_is_a_failed_attempt() -> None:
    outcome = run(lambda _request, _context: "\ud800")
    assert outcome.verdict is Verdict.FAILED
    assert outcome.failure is not None
    assert outcome.failure.type == "UnicodeEncodeError"


def test_the_handler_is_given_request_context_and_arguments() -> None:
    def handler(request: Any, context: Context, *, times: int) -> str:
        assert context.attempt == 1
        return f"{request.sequence} {request.payload * times}"

    outcome = run(handler, times=3)
    assert (outcome.result, outcome.sequence) == (b"7 xxx", 7)


def test_an_outcome_has_the_times_of_its_attempt() -> None:
    outcome = run(lambda _request, _context: sum(range(20_000)) and None)
    assert outcome.cpu_seconds > 0
    assert outcome.run_seconds > 0
    assert outcome.finished_ns - outcome.started_ns == int(outcome.run_seconds * 1e9)


def test_short_runs_cost_a_long_one_nothing() -> None:
    """The CPU time is not read after each of them, and yet is not put down to whoever comes when it is."""
    naps = iter([0.0] * 2_000 + [0.05])

    def handler(_request: Any, _context: Context) -> None:
        if nap := next(naps):
            time.sleep(nap)

    runner = Runner(handler, {}, 3)
    runner.begin()
    *short, long = [runner.run(a_task()) for _ in range(2_001)]
    assert long.run_seconds > 0.05
    assert long.cpu_seconds < 0.005
    assert sum(outcome.cpu_seconds for outcome in short) <= sum(outcome.run_seconds for outcome in short)
    assert all(outcome.cpu_seconds > 0 for outcome in short)


def test_every_start_counts_as_an_attempt() -> None:
    task = a_task(attempt=1)
    run(lambda _request, _context: None, task)
    assert task.attempt == 2


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("value", [None, b"", b"\xff\xff\xff", b"\x12\x02\xff\xff"])
def test_bytes_that_are_no_request_never_reach_the_handler(value: bytes | None) -> None:
    """They can never succeed, and no attempt was made."""
    task = a_task(value)
    outcome = run(lambda _request, _context: pytest.fail("started"), task)
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert outcome.failure.type == "MalformedRequest"
    assert (task.attempt, outcome.started_ns) == (0, 0)


class BrokenTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class EvilTextError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        RecursionError(),
        BrokenTextError(),
        EvilTextError(),
        BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError("x")]),
    ],
)
def test_whatever_is_raised_is_a_failed_attempt(error: BaseException) -> None:
    """Also what would end a program; and an exception that cannot be shown is told by its type."""
    outcome = raising(error)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.failure is not None
    assert outcome.failure.type == type(error).__name__


def test_a_failure_shows_the_users_lines_and_not_ours() -> None:
    def handler(_request: object, _context: object) -> None:
        raise ValueError("no such thing")

    failure = run(handler).failure
    assert failure is not None
    assert failure.message == "no such thing"
    assert 'raise ValueError("no such thing")' in failure.traceback
    assert "handlers/runner.py" not in failure.traceback


def test_a_rejection_can_never_succeed() -> None:
    outcome = raising(Reject("bad input"))
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.message) == ("Reject", "bad input")


@pytest.mark.parametrize(("after", "expected"), [(None, None), (90, 90.0), (0, 0.0), (1.5, 1.5)])
def test_another_attempt_can_be_asked_for(after: float | None, expected: float | None) -> None:
    outcome = raising(Retry("later", after=after))
    assert (outcome.verdict, outcome.retry_after) == (Verdict.FAILED, expected)


@pytest.mark.parametrize("after", [float("nan"), -1, "5", object()])
def test_a_delay_that_is_none_is_not_obeyed(after: Any) -> None:
    """The usual delay follows; what is done with it on the poll thread cannot raise there."""
    outcome = raising(Retry("later", after=after))
    assert outcome.retry_after is None


def test_nobody_waits_for_ever() -> None:
    """A partition would stand still."""
    outcome = raising(Retry("later", after=float("inf")))
    assert outcome.retry_after is not None
    assert outcome.retry_after < 10 * 86_400


def test_huge_texts_are_cut() -> None:
    """The answer has to fit into a record; of a traceback the end says the most."""
    failure = raising(ValueError("x" * 1_000_000 + "end")).failure
    assert failure is not None
    assert len(failure.message) <= MESSAGE_LIMIT
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert failure.traceback.rstrip().endswith("end")


def test_a_deep_recursion_is_a_failed_attempt_like_others() -> None:
    def handler(request: object, context: object) -> None:
        handler(request, context)

    failure = run(handler).failure
    assert failure is not None
    assert failure.type == "RecursionError"
    assert len(failure.traceback) <= TRACEBACK_LIMIT


@pytest.mark.parametrize(
    "error", [ValueError("\ud800"), type("Ünïcode", (Exception,), {})("x"), FileNotFoundError("\udcff")]
)
def test_any_text_can_be_put_into_an_answer(error: Exception) -> None:
    """Undecodable file names come as lone surrogates, which no message of protobuf takes."""
    outcome = raising(error)
    assert isinstance(outcome.failure, Failure)
    answer = decode_response(AnswerEncoder("w").unprocessed(outcome, outcome.failure, "DEAD_LETTERED"))
    assert answer.error.type == type(error).__name__


# ---------------------------------------------------------------- cancellation


@pytest.mark.parametrize("reason", ["revoked", "drain"])
@pytest.mark.parametrize("returned", ["done", ValueError("interrupted"), Reject("given up")])
def test_a_cancelled_attempt_is_dropped_whatever_it_returns(reason: Any, returned: object) -> None:
    """What a handler returns early is not the answer, and it cannot be told from one."""
    seen: list[str | None] = []

    def handler(_request: object, context: Context) -> Any:
        assert runner.cancel(reason, [task.lane]) is task
        seen.append(context.cancelled.reason)
        if isinstance(returned, Exception):
            raise returned
        return returned

    task = a_task()
    runner = Runner(handler, {}, 3)
    outcome = runner.run(task)
    assert seen == [reason]
    assert outcome.verdict is Verdict.DROPPED


def test_only_a_task_of_the_lanes_named_is_cancelled() -> None:
    """The order may come when one of another lane has begun, or none runs."""
    late = a_task().lane

    def handler(_request: object, context: Context) -> str:
        assert runner.cancel("drain", [late]) is None
        return str(context.cancelled.is_set())

    runner = Runner(handler, {}, 3)
    assert runner.cancel("drain", [late]) is None
    assert runner.run(a_task()).result == b"False"


def test_the_running_task_can_be_seen() -> None:
    seen: list[Any] = []

    def handler(_request: object, _context: object) -> None:
        seen.append(runner.running)

    task = a_task()
    runner = Runner(handler, {}, 3)
    assert runner.running is None
    runner.run(task)
    assert seen[0] is not None
    assert seen[0][0] is task
    assert seen[0][1] >= 0
    assert runner.running is None


# ---------------------------------------------------------------- fork

FORKING = """
import os, sys
from tests.unit.support import a_task
from worker.handlers.runner import Runner

def handler(request, context):
    child = os.fork()
    if child == 0:
        {child}
    return str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

outcome = Runner(handler, {{}}, 3).run(a_task())
print(outcome.verdict.name, outcome.result.decode())
"""


@pytest.mark.parametrize(("child", "status"), [("return 'child'", "0"), ("raise ValueError('child')", "1")])
def test_a_forked_child_that_comes_back_is_no_second_worker(child: str, status: str) -> None:
    """It ends there and then: it would use its parent's connections. Only the parent has an outcome."""
    program = FORKING.format(child=child)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env=environment,
        cwd=ROOT,
    )
    assert done.stdout.splitlines() == [f"OK {status}"]
