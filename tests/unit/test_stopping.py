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
    stopping.drain(150.0)  # the time limit does not start again
    assert stopping.update(159.9) is Phase.DRAIN
    assert stopping.update(160.0) is Phase.CANCEL


def test_a_running_replica_does_not_stop_by_itself() -> None:
    assert Stopping(drain_timeout=60).update(1e9) is Phase.RUN


def test_a_drain_after_a_cancellation_changes_nothing() -> None:
    stopping = Stopping(drain_timeout=60)
    stopping.drain(0.0)
    stopping.cancel()
    stopping.drain(1.0)
    assert stopping.update(2.0) is Phase.CANCEL


def test_the_exit_code_reports_lost_tasks() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.drain(0.0)
    assert int(stopping.exit_code) == 0
    stopping.lost_tasks()
    assert int(stopping.exit_code) == 6


def test_the_exit_code_reports_the_first_cause() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.halt(ExitCode.HANDLER_UNLOADABLE, 0.0)
    stopping.halt(ExitCode.CRASH_LOOP, 1.0)
    stopping.lost_tasks()
    assert stopping.exit_code is ExitCode.HANDLER_UNLOADABLE
    assert stopping.phase is Phase.DRAIN


def test_a_crash_loop_during_a_drain_does_not_change_the_exit_code() -> None:
    stopping = Stopping(drain_timeout=0)
    stopping.drain(0.0)
    stopping.halt(ExitCode.CRASH_LOOP, 1.0)
    assert stopping.exit_code is ExitCode.DRAINED
