"""An attempt in a user's test has the same result as in a worker process."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest

from tests.unit.support import Watch
from worker.errors import Cancelled, Reject, Retry
from worker.handlers import attempt, context
from worker.testing import run_batch, run_handler

LONG = 30.0  # seconds; only a failure ever waits that long


def fail(error: BaseException) -> Any:
    def handler(*_: object) -> None:
        raise error

    return handler


def wait(_request: object, context: Any) -> str:
    if context.cancelled.wait(LONG):
        raise Cancelled(context.cancelled.reason)
    return "never asked"


def test_the_handler_gets_the_values_of_the_test() -> None:
    """It gets payload, key, headers, attempt, deadline and keyword arguments, in a thread as in a worker process."""
    seen: dict[str, Any] = {}

    def handler(request: Any, context: Any, *, factor: int) -> str:
        seen.update(payload=request.payload, key=context.key, headers=context.headers, attempt=context.attempt)
        seen.update(remaining=context.remaining, thread=threading.current_thread(), factor=factor)
        return "ключ"

    result = run_handler(
        handler,
        "p",
        key=b"k",
        headers=[("h", b"1")],
        attempt=7,
        deadline=time.time() + 600,
        kwargs={"factor": 2},
    )
    assert (result.outcome, result.result, result.cancelled) == ("OK", "ключ".encode(), None)
    assert (seen["payload"], seen["key"], seen["attempt"], seen["factor"]) == ("p", b"k", 7, 2)
    assert seen["headers"][0] == ("h", b"1")
    assert 0 < seen["remaining"] <= 600
    assert seen["thread"] is not threading.main_thread()


@pytest.mark.parametrize(
    ("error", "outcome", "retry_after"),
    [
        (ValueError("why"), "FAILED", None),
        (Retry("why", after=5), "FAILED", 5.0),
        (Reject("why"), "DEAD_LETTERED", None),
        (SystemExit("why"), "FAILED", None),
    ],
)
def test_an_exception_of_the_handler_becomes_a_result(
    error: BaseException, outcome: str, retry_after: float | None
) -> None:
    result = run_handler(fail(error), "p")
    assert (result.outcome, result.retry_after) == (outcome, retry_after)
    assert (result.error_type, result.message) == (type(error).__name__, "why")
    assert "raise error" in result.traceback


def test_a_result_of_the_wrong_type_is_a_dead_letter() -> None:
    assert run_handler(lambda *_: 1, "p").outcome == "DEAD_LETTERED"  # type: ignore[arg-type]


def test_a_progress_message_that_is_not_valid_utf8_is_escaped() -> None:
    """Unescaped it could not be written to the state topic, and the process would end."""
    result = run_handler(lambda _request, context: context.progress(0.5, "a\ud800"), "p")
    assert (result.outcome, result.progress) == ("OK", ((0.5, "a\\ud800"),))


@pytest.mark.parametrize("cancel", ["drain", ("drain", 0.02)])
def test_a_cancellation_reaches_the_handler(cancel: Any) -> None:
    """The cancellation comes before the start or during the attempt."""
    result = run_handler(wait, "p", cancel=cancel)
    assert (result.outcome, result.cancelled, result.error_type) == ("CANCELLED", "drain", "Cancelled")


def test_a_cancellation_before_the_start_is_set_at_the_start() -> None:
    result = run_handler(lambda _request, context: str(context.cancelled.is_set()), "p", cancel="revoked")
    assert (result.result, result.cancelled) == (b"True", "revoked")


def test_a_result_counts_despite_a_cancellation() -> None:
    """It does so in a worker process too."""
    assert run_handler(lambda *_: "done", "p", cancel="drain").outcome == "OK"


@pytest.mark.parametrize("cancel", ["requested", ("requested", 0.02)])
@pytest.mark.parametrize("error", [None, ValueError("why"), Reject("why"), Retry("why", after=5)])
def test_a_cancel_request_discards_everything_that_the_handler_did(cancel: Any, error: Exception | None) -> None:
    """In a worker process, too, the answer is CANCELLED even if the handler returns a result or raises an error."""

    def handler(_request: object, context: Any) -> str:
        context.send("next")
        assert context.cancelled.wait(LONG)
        if error is not None:
            raise error
        return "done"

    result = run_handler(handler, "p", cancel=cancel)
    assert (result.outcome, result.error_type, result.message) == ("CANCELLED", "Cancelled", "requested")
    assert (result.result, result.sent, result.retry_after, result.cancelled) == (b"", (), None, "requested")


def test_an_expired_request_with_a_cancel_request_is_expired() -> None:
    assert run_handler(lambda *_: "done", "p", deadline=1.0, cancel="requested").outcome == "EXPIRED"


def test_a_deadline_stops_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline passes after the start of the handler, even on a slow machine."""
    watch = Watch()
    for module in (attempt, context):
        monkeypatch.setattr(module, "time", watch)

    def handler(request: object, context: Any) -> str:
        watch.sleep(60.0)
        return wait(request, context)

    result = run_handler(handler, "p", deadline=watch.time() + 60.0)
    assert (result.outcome, result.cancelled) == ("EXPIRED", "deadline")


def test_a_request_whose_deadline_has_passed_does_not_start() -> None:
    result = run_handler(lambda *_: sys.exit("started"), "p", deadline=1.0)
    assert (result.outcome, result.error_type) == ("EXPIRED", "Expired")


def test_a_batch_has_a_result_for_each_payload() -> None:
    def handler(batch: Any, _context: object, *, suffix: str) -> None:
        for task in reversed(list(batch)):
            match task.payload:
                case "good":
                    batch.ack(task, task.payload + suffix)
                case "bad":
                    batch.nack(task, "why")

    results = run_batch(handler, ["good", "bad", "forgotten"], kwargs={"suffix": "!"})
    assert [(one.outcome, one.result, one.error_type) for one in results] == [
        ("OK", b"good!", ""),
        ("FAILED", b"", "Nack"),
        ("FAILED", b"", "NotSettled"),
    ]


@pytest.mark.parametrize("cancel", ["revoked", ("revoked", 0.02)])
def test_a_cancellation_reaches_a_batch(cancel: Any) -> None:
    results = run_batch(lambda _batch, context: context.cancelled.wait(LONG), ["a", "b"], cancel=cancel)
    assert [(one.outcome, one.cancelled) for one in results] == [("CANCELLED", "revoked")] * 2


def test_a_task_of_a_batch_that_was_acked_before_a_cancel_request_counts() -> None:
    def handler(batch: Any, context: Any) -> None:
        first, second = batch
        batch.ack(first, "done")
        assert context.cancelled.wait(LONG)
        batch.ack(second, "done")

    results = run_batch(handler, ["a", "b"], cancel=("requested", 0.02))
    assert [(one.outcome, one.result) for one in results] == [("OK", b"done"), ("CANCELLED", b"")]


def test_a_handler_is_not_kept_in_memory_after_its_attempt() -> None:
    """A test suite runs thousands of handlers."""

    def handler(*_: object) -> None:
        """Do nothing."""

    kept = weakref.ref(handler)
    run_handler(handler, "p")
    del handler
    gc.collect()
    assert kept() is None
