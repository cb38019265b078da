"""The limits of a task: it is cancelled, and killed after the grace period, never early. Its end has a name."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.limits import Cancel, Kill, Limits, Request, Wait, failure_of, how_it_ended, judge
from worker.core.model import Verdict
from worker.core.timelimit import TimeLimitError, limit_of, timeout_of

spans = st.floats(min_value=0.001, max_value=1e6)
moments = st.floats(min_value=0, max_value=1e6)
maybe = spans | st.just(math.inf)


@given(started=moments, timeout=maybe, deadline=moments | st.just(math.inf), grace=spans)
def test_a_task_is_cancelled_at_its_limit_and_killed_after_the_grace_period(
    started: float, timeout: float, deadline: float, grace: float
) -> None:
    """The test goes from one due time to the next."""
    limits = Limits(timeout, deadline, grace)
    first = min(started + timeout, deadline)
    step = judge(started, limits, started_at=started)
    if isinstance(step, Wait):
        assert step.until == first
        if step.until == math.inf:
            return
        step = judge(step.until, limits, started_at=started)
    assert isinstance(step, Cancel)
    assert step.reason == ("timeout" if started + timeout <= deadline else "deadline")
    request = Request(step.reason, max(started, first))
    waiting = judge(request.at, limits, started_at=started, request=request)
    assert waiting == Wait(request.at + grace)
    assert judge(request.at + grace, limits, started_at=started, request=request) == Kill(step.reason)


@given(now=moments, started=moments, resident=st.integers(0, 2**40), memory=st.integers(1, 2**40))
def test_a_task_that_uses_too_much_memory_is_killed_immediately(
    now: float, started: float, resident: int, memory: int
) -> None:
    """A task that uses no more than its limit is not killed."""
    step = judge(now, Limits(memory=memory), started_at=started, resident=resident)
    assert (step == Kill("memory")) == (resident > memory)


def test_the_first_reason_stays() -> None:
    """A deadline that passes during the grace period does not start another one."""
    limits = Limits(timeout=1.0, deadline=2.0, grace=5.0)
    assert judge(3.0, limits, started_at=0.0, request=Request("timeout", 1.0)) == Wait(6.0)
    assert judge(6.0, limits, started_at=0.0, request=Request("timeout", 1.0)) == Kill("timeout")


@pytest.mark.parametrize(
    ("cause", "verdict", "kind"),
    [
        (None, Verdict.FAILED, "ProcessDied"),
        ("channel", Verdict.FAILED, "ProcessDied"),
        ("timeout", Verdict.FAILED, "TimeLimitExceeded"),
        ("deadline", Verdict.EXPIRED, "TimeLimitExceeded"),
        ("memory", Verdict.FAILED, "MemoryLimitExceeded"),
        ("revoked", Verdict.DROPPED, "Cancelled"),
        ("drain", Verdict.DROPPED, "Cancelled"),
    ],
)
def test_each_cause_of_death_has_a_verdict_and_an_error_type(cause: str | None, verdict: Verdict, kind: str) -> None:
    """The error types are those of the contract."""
    what, failure = failure_of(cause, -9, Limits(timeout=1.0, memory=1 << 20), "stack")  # type: ignore[arg-type]
    assert (what, failure.type) == (verdict, kind)


def test_the_end_of_a_process_is_described_in_words() -> None:
    """The text has the name of the signal, or the exit code."""
    assert how_it_ended(7) == "exit code 7"
    assert how_it_ended(-11) == "SIGSEGV"
    assert how_it_ended(-9).startswith("SIGKILL, which is also what the kernel sends")
    assert how_it_ended(-40) == "signal 40"


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("500ms", 0.5), (" 2m ", 120.0)])
def test_the_header_lowers_the_limit(text: str, seconds: float) -> None:
    """It never raises the limit. The last of several headers counts."""
    headers = (("x-timeout", b"99h"), ("other", None), ("x-timeout", text.encode()))
    assert timeout_of(headers) == seconds
    assert limit_of(headers, 0) == seconds
    assert limit_of(headers, 0.25) == 0.25


@pytest.mark.parametrize("value", [b"soon", b"-1", b"0", b"", None, b"inf", b"nan", b"\xff", b"9" * 400])
def test_an_invalid_time_limit_header_is_refused(value: bytes | None) -> None:
    """``timeout_of`` refuses the header, and ``limit_of`` ignores it."""
    headers = (("x-timeout", value),)
    with pytest.raises(TimeLimitError):
        timeout_of(headers)
    assert limit_of(headers, 3.0) == 3.0


def test_a_task_without_a_setting_and_a_header_has_no_time_limit() -> None:
    """The header ``x-deadline`` is not a time limit."""
    assert timeout_of((("x-deadline", b"1"),)) is None
    assert limit_of((), 0) == math.inf
