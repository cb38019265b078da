"""Results wait while the broker is unreachable and too many answers are undelivered. No task is affected."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.isolation.rig import names
from worker.executors.port import ChildEnded
from worker.executors.thread import MAX_WAITING_BYTES
from worker.isolation.mailbox import Outbox
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20


def turn(rig: Rig) -> None:
    """Run a turn of the poll thread that takes no results, because too many answers are being delivered."""
    rig.mailbox.wait(0.02)
    rig.executor.check()


def waiting_bytes(rig: Rig) -> int:
    return sum(len(event.result) for event in rig.mailbox._outcomes)


def fill(rig: Rig) -> list[Any]:
    tasks = rig.submit(*[f"big {3 * MIB}"] * 6)
    end = time.monotonic() + 30
    while waiting_bytes(rig) < MAX_WAITING_BYTES:
        assert time.monotonic() < end
        turn(rig)
    return tasks


def test_the_wait_of_a_result_does_not_count_towards_the_time_limit(make: Callable[..., Rig]) -> None:
    """The tasks take milliseconds. Their results wait because the broker is unreachable."""
    rig = make(Policy(timeout=0.5, grace=0.2))
    fill(rig)
    rig.submit(f"big {3 * MIB}", "ok")
    end = time.monotonic() + 2
    while time.monotonic() < end:
        turn(rig)
    outcomes = rig.take(8)
    assert names(outcomes) == ["OK"] * 8
    assert [one.task.attempt for one in outcomes] == [1] * 8


def test_a_time_limit_holds_while_results_wait(make: Callable[..., Rig]) -> None:
    rig = make(Policy(timeout=0.5, grace=0.2))
    fill(rig)
    rig.submit("ok", "spin")
    end, ends = time.monotonic() + 3, []
    while time.monotonic() < end:
        turn(rig)
        ends += [event.cause for event in rig.mailbox.take_news() if isinstance(event, ChildEnded)]
    assert ends == ["timeout"]


def test_a_memory_limit_holds_while_results_wait(make: Callable[..., Rig]) -> None:
    rig = make(Policy(memory=200 * MIB))
    fill(rig)
    rig.submit("ok", "grow 100")
    end, ends, peak = time.monotonic() + 4.5, [], 0
    while time.monotonic() < end:
        turn(rig)
        peak = max(peak, rig.executor.child_bytes)
        ends += [event.cause for event in rig.mailbox.take_news() if isinstance(event, ChildEnded)]
    assert (ends, peak < 300 * MIB) == (["memory"], True), peak / MIB


def test_no_child_is_killed_when_results_are_taken_during_a_check(
    make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll thread takes the results right after the executor's thread has found too many of them."""
    rig = make()
    tasks = fill(rig)
    real = Outbox.full.fget  # type: ignore[attr-defined]
    taken: list[Any] = []

    def full(self: Outbox) -> bool:
        value: bool = real(self)
        running = rig.executor._slot.link
        if value and not taken and running is not None and running.flight.first < running.started:
            taken.extend(rig.mailbox.take())
        return value

    monkeypatch.setattr(Outbox, "full", property(full))
    tasks += rig.submit("ok", "nap 1")
    end = time.monotonic() + 10
    while not taken:
        assert time.monotonic() < end
        time.sleep(0.01)
    outcomes = taken + rig.take(8 - len(taken))
    assert names(outcomes) == ["OK"] * 8
