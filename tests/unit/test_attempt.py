"""An attempt has exactly one outcome, whatever the handler does."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.attempts import run
from tests.unit.support import Watch, a_task
from worker.codec import AnswerEncoder, decode_response
from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Reject, Retry
from worker.handlers import attempt
from worker.handlers.attempt import AttemptRunner
from worker.handlers.judging import MESSAGE_LIMIT, TRACEBACK_LIMIT
from worker.headers import UNREADABLE

if TYPE_CHECKING:
    from worker.handlers.context import Context


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
        ({"a": [1, None], "b": "ü"}, '{"a":[1,null],"b":"ü"}'.encode()),
        ([], b"[]"),
    ],
)
def test_the_value_that_a_handler_returns_is_the_result(returned: object, result: bytes) -> None:
    """A str becomes UTF-8, bytes stay as they are, a dict or list becomes JSON, and None becomes empty."""
    outcome = run(lambda _request, _context: returned)
    assert (outcome.verdict, outcome.result, outcome.failure) == (Verdict.OK, result, None)


@pytest.mark.parametrize(
    "returned", [0, 1.5, {"a": object()}, [math.nan], ["\ud800"], {"\ud800": 1}, "\ud800", (1,), True]
)
def test_a_result_that_cannot_be_encoded_rejects_the_request(returned: object) -> None:
    """Another attempt would repeat hours of work, and would not change what the function returns."""
    outcome = run(lambda _request, _context: returned)
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert f"returned {type(returned).__name__}" in outcome.failure.message


def test_the_error_for_a_text_without_utf8_names_the_position() -> None:
    outcome = run(lambda _request, _context: "a\ud800")
    assert outcome.failure is not None
    assert outcome.failure.message.startswith("the handler returned str that UTF-8 cannot hold: ")
    assert "in position 1" in outcome.failure.message


def test_the_handler_gets_the_request_the_context_and_its_arguments() -> None:
    def handler(request: Any, context: Context, *, times: int) -> str:
        assert context.attempt == 1
        return f"{request.sequence} {request.payload * times}"

    outcome = run(handler, times=3)
    assert (outcome.result, outcome.sequence) == (b"7 xxx", 7)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(attempt, "time", watch)
    return watch


def test_an_outcome_has_the_times_of_its_attempt(watch: Watch) -> None:
    def handler(_request: Any, _context: Context) -> None:
        watch.work(0.25)
        watch.sleep(2.0)

    outcome = run(handler)
    assert (outcome.run_seconds, outcome.cpu_seconds) == (2.25, 0.25)
    assert outcome.finished_ns - outcome.started_ns == 2_250_000_000


def test_the_cpu_time_of_short_attempts_is_not_counted_for_a_long_one(watch: Watch) -> None:
    """The CPU time is not read after each short attempt, and the attempt before a reading does not get all of it."""
    steps = iter([lambda: watch.work(0.000_01)] * 2_000 + [lambda: watch.sleep(0.05)])
    runner = AttemptRunner(lambda _request, _context: next(steps)(), {}, 3)
    runner.begin()
    *short, long = [runner.run(a_task()) for _ in range(2_001)]
    assert long.run_seconds == pytest.approx(0.05)
    assert long.cpu_seconds <= attempt.READING_SECONDS
    assert sum(outcome.cpu_seconds for outcome in short) == pytest.approx(0.02, rel=0.01)
    assert all(outcome.cpu_seconds > 0 for outcome in short)


def test_every_start_counts_as_an_attempt() -> None:
    task = a_task(attempt=1)
    run(lambda _request, _context: None, task)
    assert task.attempt == 2


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize("value", [None, b"", b"\xff\xff\xff", b"\x12\x02\xff\xff"])
def test_bytes_that_are_not_a_request_never_reach_the_handler(value: bytes | None) -> None:
    """The request is rejected, and no attempt is counted."""
    task = a_task(value)
    outcome = run(lambda _request, _context: pytest.fail("started"), task)
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert outcome.failure.type == "MalformedRequest"
    assert (task.attempt, outcome.started_ns) == (0, 0)


def test_headers_that_cannot_be_read_are_malformed() -> None:
    task = a_task(headers=((UNREADABLE, None),))
    outcome = run(lambda _request, _context: pytest.fail("started"), task)
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure == Failure("MalformedHeaders", "the name of a header is not UTF-8")


class BrokenTextError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class EvilTextError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class UninitializedRetry(Retry):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    "error",
    [
        UninitializedRetry(),
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
def test_any_exception_makes_a_failed_attempt(error: BaseException) -> None:
    """This includes exceptions that would end a program. An exception without a readable text keeps its type."""
    outcome = raising(error)
    assert outcome.verdict is Verdict.FAILED
    assert outcome.failure is not None
    assert outcome.failure.type == type(error).__name__


def test_a_traceback_shows_the_users_lines_and_not_the_workers() -> None:
    def handler(_request: object, _context: object) -> None:
        raise ValueError("no such thing")

    failure = run(handler).failure
    assert failure is not None
    assert failure.message == "no such thing"
    assert 'raise ValueError("no such thing")' in failure.traceback
    assert "handlers/attempt.py" not in failure.traceback


def test_a_handler_that_raises_reject_rejects_the_request() -> None:
    outcome = raising(Reject("bad input"))
    assert outcome.verdict is Verdict.REJECTED
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.failure.message) == ("Reject", "bad input")


@pytest.mark.parametrize(("after", "expected"), [(None, None), (90, 90.0), (0, 0.0), (1.5, 1.5)])
def test_a_handler_can_request_another_attempt_and_its_delay(after: float | None, expected: float | None) -> None:
    outcome = raising(Retry("later", after=after))
    assert (outcome.verdict, outcome.retry_after) == (Verdict.FAILED, expected)


@pytest.mark.parametrize("after", [float("nan"), -1, "5", object()])
def test_an_invalid_delay_is_ignored(after: Any) -> None:
    """The usual back-off applies instead. The poll thread never gets a delay with which it could raise."""
    outcome = raising(Retry("later", after=after))
    assert outcome.retry_after is None


def test_an_infinite_delay_is_limited() -> None:
    """Otherwise the partition would be blocked."""
    outcome = raising(Retry("later", after=float("inf")))
    assert outcome.retry_after is not None
    assert outcome.retry_after < 10 * 86_400


def test_huge_messages_and_tracebacks_are_cut() -> None:
    """The answer has to fit into a record. The end of a traceback is kept, because it says the most."""
    failure = raising(ValueError("x" * 1_000_000 + "end")).failure
    assert failure is not None
    assert len(failure.message) <= MESSAGE_LIMIT
    assert len(failure.traceback) <= TRACEBACK_LIMIT
    assert failure.traceback.rstrip().endswith("end")


def test_a_deep_recursion_is_a_failed_attempt() -> None:
    def handler(request: object, context: object) -> None:
        handler(request, context)

    failure = run(handler).failure
    assert failure is not None
    assert failure.type == "RecursionError"
    assert len(failure.traceback) <= TRACEBACK_LIMIT


@pytest.mark.parametrize(
    "error", [ValueError("\ud800"), type("Ünïcode", (Exception,), {})("x"), FileNotFoundError("\udcff")]
)
def test_an_answer_can_contain_any_error_text(error: Exception) -> None:
    """Undecodable file names contain lone surrogates, which protobuf does not accept."""
    outcome = raising(error)
    assert isinstance(outcome.failure, Failure)
    answer = decode_response(AnswerEncoder("w").unprocessed(outcome, outcome.failure, "DEAD_LETTERED"))
    assert answer.error.type == type(error).__name__
