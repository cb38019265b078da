"""How a replica stops."""

from __future__ import annotations

from worker.core.stopping import Phase, Stopping
from worker.errors import ExitCode


def test_a_drain_without_a_limit_waits_forever() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.drain(100.0)
    assert stopping.update(1e9) is Phase.DRAIN


def test_a_drain_with_a_limit_ends_in_cancelling() -> None:
    stopping = Stopping(drain_timeout=60)
    stopping.drain(100.0)
    stopping.drain(150.0)  # no second start of the clock
    assert stopping.update(159.9) is Phase.DRAIN
    assert stopping.update(160.0) is Phase.CANCEL


def test_a_running_replica_does_not_stop_by_itself() -> None:
    assert Stopping(drain_timeout=60).update(1e9) is Phase.RUN


def test_cancelling_is_not_taken_back() -> None:
    stopping = Stopping(drain_timeout=60)
    stopping.drain(0.0)
    stopping.cancel()
    stopping.drain(1.0)
    assert stopping.update(2.0) is Phase.CANCEL


def test_the_exit_code_tells_of_lost_tasks() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.drain(0.0)
    assert int(stopping.exit_code) == 0
    stopping.lost_tasks()
    assert int(stopping.exit_code) == 6


def test_the_first_cause_is_the_one_that_is_told() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.halt(ExitCode.HANDLER_UNLOADABLE, 0.0)
    stopping.halt(ExitCode.CRASH_LOOP, 1.0)
    stopping.lost_tasks()
    assert stopping.exit_code is ExitCode.HANDLER_UNLOADABLE
    assert stopping.phase is Phase.DRAIN


def test_a_replica_that_was_told_to_stop_does_not_fail_on_the_way() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.drain(0.0)
    stopping.halt(ExitCode.CRASH_LOOP, 1.0)
    assert stopping.exit_code is ExitCode.DRAINED
