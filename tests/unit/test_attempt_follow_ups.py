"""The follow-up requests of an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.attempts import run
from tests.unit.support import a_task
from worker.core.model import FollowUp, Verdict
from worker.handlers.attempt import AttemptRunner

if TYPE_CHECKING:
    from worker.handlers.context import Context


def test_a_successful_attempt_has_its_follow_up_requests() -> None:
    def handler(_request: object, context: Context) -> None:
        context.send("a", key="ключ", topic="next")
        context.send("b", key=b"\xff")
        context.send("")

    assert run(handler).sent == (
        FollowUp("next", "ключ".encode(), "a"),
        FollowUp(None, b"\xff", "b"),
        FollowUp(None, None, ""),
    )


@pytest.mark.parametrize("reason", [None, "drain", "timeout", "requested"])
def test_a_failed_or_cancelled_attempt_sends_nothing(reason: Any) -> None:
    task = a_task()

    def handler(_request: object, context: Context) -> None:
        context.send("a")
        if reason is not None:
            runner.cancel(reason, task)
        context.cancelled.raise_if_set()
        raise ValueError

    runner = AttemptRunner(handler, {}, 3)
    outcome = runner.run(task)
    assert outcome.verdict is not Verdict.OK
    assert outcome.sent == ()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"payload": {"a": 1}}, TypeError),
        ({"payload": "\ud800"}, ValueError),
        ({"payload": "a", "topic": "no topic"}, ValueError),
        ({"payload": "a", "topic": ""}, ValueError),
        ({"payload": "a", "key": 42}, TypeError),
        ({"payload": "a", "key": 0}, TypeError),
        ({"payload": "a", "key": bytearray(b"k")}, TypeError),
    ],
)
def test_an_invalid_follow_up_request_raises_in_the_handler(arguments: Any, error: type[Exception]) -> None:
    def handler(_request: object, context: Context) -> str:
        with pytest.raises(error):
            context.send(**arguments)
        return "refused"

    outcome = run(handler)
    assert (outcome.result, outcome.sent) == (b"refused", ())


def test_send_raises_after_the_end_of_the_attempt() -> None:
    kept: list[Context] = []
    run(lambda _request, context: kept.append(context))
    with pytest.raises(RuntimeError, match="was called after the attempt"):
        kept[0].send("late")
