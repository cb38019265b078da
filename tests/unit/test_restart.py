"""The decision after the end of a worker process."""

from __future__ import annotations

import signal

import pytest

from worker.core.restart import (
    HEALTHY_SECONDS,
    SHORT_LIMIT,
    USELESS_LIMIT,
    Ending,
    Halt,
    History,
    Respawn,
    classify,
    decide,
)
from worker.errors import ExitCode

KILLED = Ending("SIGKILL")
UNREACHABLE = Ending("store_unreachable", ExitCode.STORE_UNREACHABLE)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (0, Ending("drained", 0)),
        (1, Ending("exit_1", 1)),  # our 1 is the supervisor's; in a worker process it is the interpreter's
        (3, Ending("handler_unloadable", 3)),
        (72, Ending("thread_died", 72)),
        (99, Ending("exit_99", 99)),
        (-11, Ending("SIGSEGV")),
        (-64, Ending("SIGRTMAX")),
        (-50, Ending("signal_50")),
    ],
)
def test_an_ending_is_named_by_its_exit_code_or_signal(status: int, ending: Ending) -> None:
    assert classify(status) == ending


def test_sigkill_counts_as_out_of_memory_only_if_the_kernel_says_so() -> None:
    assert classify(-signal.SIGKILL) == KILLED
    assert classify(-signal.SIGKILL, out_of_memory=True) == Ending("out_of_memory")
    assert classify(-signal.SIGSEGV, out_of_memory=True) == Ending("SIGSEGV")
    assert classify(1, out_of_memory=True) == Ending("exit_1", 1)


def test_a_process_that_the_watchdog_killed_is_called_stuck() -> None:
    """It may have died from SIGABRT or SIGKILL. A process that exits by itself at the last moment is not stuck."""
    assert classify(-signal.SIGABRT, stuck=True) == Ending("stuck")
    assert classify(-signal.SIGKILL, stuck=True, out_of_memory=True) == Ending("stuck")
    assert classify(0, stuck=True) == Ending("drained", 0)


def test_the_first_restart_is_quick_and_later_ones_take_longer() -> None:
    history, delays = History(), []
    for _ in range(SHORT_LIMIT - 1):
        decision = decide(KILLED, 1.0, history, explained=False, useful=True, jitter=0.0)
        assert isinstance(decision, Respawn)
        delays.append(decision.after)
        history = decision.history
    assert delays[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert delays[-1] == 30


def test_a_healthy_run_clears_the_history() -> None:
    history = History(useless=USELESS_LIMIT - 1, short=SHORT_LIMIT - 1)
    decision = decide(KILLED, HEALTHY_SECONDS, history, explained=False, useful=True, jitter=0.0)
    assert decision == Respawn(0.2, History(useless=0, short=1))


def test_repeated_crashes_before_the_first_answer_are_a_crash_loop() -> None:
    """The time in the group does not matter. The process may have waited for the partition of the fatal request."""
    decision, history = None, History()
    for _ in range(USELESS_LIMIT):
        decision = decide(Ending("SIGSEGV"), 45.0, history, explained=False, useful=False, jitter=0.0)
        history = decision.history if isinstance(decision, Respawn) else history
    assert isinstance(decision, Halt)
    assert decision.exit_code is ExitCode.CRASH_LOOP


@pytest.mark.parametrize(("ending", "useful"), [(Ending("SIGSEGV"), True), (KILLED, False), (Ending("SIGTERM"), False)])
def test_an_answer_or_a_kill_from_outside_is_not_a_sign_of_a_crash_loop(ending: Ending, useful: bool) -> None:
    history = History(useless=USELESS_LIMIT - 1, short=SHORT_LIMIT - 1)
    decision = decide(ending, 45.0, history, explained=False, useful=useful, jitter=0.0)
    assert decision == Respawn(0.2, History(useless=0, short=1))


def test_a_process_that_has_joined_clears_the_count_of_useless_processes() -> None:
    """A process that joins the group has shown that it can start. Only the count of short runs continues."""
    decision = decide(
        KILLED, 0.1, History(useless=USELESS_LIMIT - 1, short=4), explained=False, useful=True, jitter=0.0
    )
    assert isinstance(decision, Respawn)
    assert decision.history == History(useless=0, short=5)


def test_the_replica_stops_after_a_few_processes_that_never_join() -> None:
    decision = decide(KILLED, None, History(useless=USELESS_LIMIT - 1), explained=False, useful=True, jitter=0.0)
    assert isinstance(decision, Halt)
    assert decision.exit_code is ExitCode.CRASH_LOOP
    assert "SIGKILL" in decision.reason


def test_the_replica_stops_after_many_processes_that_join_and_end_soon() -> None:
    """The limit is high, because each of a few fatal requests may kill as many processes as it has attempts."""
    decision = decide(KILLED, 0.5, History(short=SHORT_LIMIT - 1), explained=False, useful=True, jitter=0.0)
    assert isinstance(decision, Halt)
    assert decision.exit_code is ExitCode.CRASH_LOOP


@pytest.mark.parametrize("code", [ExitCode.SETTINGS_INVALID, ExitCode.HANDLER_UNLOADABLE])
def test_a_failure_that_no_restart_can_fix_stops_the_replica(code: ExitCode) -> None:
    decision = decide(Ending("x", code), None, History(), explained=False, useful=True, jitter=0.0)
    assert isinstance(decision, Halt)
    assert decision.exit_code is code


def test_a_set_up_hook_that_fails_in_the_first_child_stops_the_replica() -> None:
    """With ``WORKER_ISOLATION=process`` the process joins the group before its first child has called the hook."""
    ending = Ending("x", ExitCode.HANDLER_UNLOADABLE)
    decision = decide(ending, 0.5, History(), explained=True, useful=False, jitter=0.0)
    assert isinstance(decision, Halt)
    assert decision.exit_code is ExitCode.HANDLER_UNLOADABLE


def test_an_outage_of_the_store_never_stops_the_replica() -> None:
    """The outage may last long, and peer processes may be in the middle of long tasks."""
    history = History(useless=USELESS_LIMIT - 1, short=SHORT_LIMIT - 1)
    assert decide(UNREACHABLE, None, history, explained=True, useful=False, jitter=0.0) == Respawn(30, history)


def test_a_kernel_without_process_numbers_never_stops_the_replica() -> None:
    history = History(useless=USELESS_LIMIT - 1, short=SHORT_LIMIT - 1)
    ending = classify(ExitCode.UNSTARTABLE)
    assert ending.name == "unstartable"
    decision = decide(ending, None, history, explained=False, useful=False, jitter=0.0)
    assert isinstance(decision, Respawn)
    assert decision.after == pytest.approx(3.2)
    assert decision.history == history


@pytest.mark.parametrize("code", [ExitCode.SETTINGS_INVALID, ExitCode.HANDLER_UNLOADABLE])
@pytest.mark.parametrize(("explained", "useful"), [(True, True), (False, False)])
def test_the_same_exit_code_after_a_join_is_an_ordinary_crash(code: ExitCode, *, explained: bool, useful: bool) -> None:
    """A task may end its process with any code. The process gives no reason then."""
    decision = decide(Ending("x", code), 5.0, History(), explained=explained, useful=useful, jitter=0.0)
    assert isinstance(decision, Respawn)
