"""The difference between a slow process and a stuck one."""

from __future__ import annotations

import pytest

from worker.core.liveness import Limits, LivenessCheck, Ok, Slow, Stuck

LIMITS = Limits(boot=30.0, turn=10.0)


class Process:
    """A process and its clock."""

    def __init__(self) -> None:
        self.liveness = LivenessCheck(LIMITS)
        self.turns = 0
        self.cpu = 0.0
        self.now = 1000.0

    def run(self, seconds: int, *, turning: bool, share: float) -> list[Ok | Slow | Stuck]:
        """Return the verdicts of one check per second while the process behaves as given."""
        verdicts = []
        for _ in range(seconds):
            self.now += 1
            self.turns += turning
            self.cpu += share
            verdicts.append(self.liveness.check(self.turns, self.cpu, self.now))
        return verdicts


@pytest.fixture
def process() -> Process:
    """Return a process whose loop has turned for a while."""
    process = Process()
    process.run(5, turning=True, share=0.5)
    return process


def test_a_process_whose_loop_turns_is_ok_without_cpu_use(process: Process) -> None:
    assert set(process.run(100, turning=True, share=0.0)) == {Ok()}


def test_a_process_whose_loop_does_not_turn_is_stuck_without_cpu_use(process: Process) -> None:
    assert process.run(10, turning=False, share=0.0) == [Ok()] * 9 + [Stuck(10.0)]


def test_a_process_whose_loop_does_not_turn_is_slow_while_it_uses_cpu(process: Process) -> None:
    """The check reports this once per window."""
    verdicts = [verdict for verdict in process.run(35, turning=False, share=0.06) if verdict != Ok()]
    assert verdicts == [Slow(10.0), Slow(20.0), Slow(30.0)]


def test_the_cpu_use_of_heartbeats_does_not_count_as_work(process: Process) -> None:
    assert Stuck(10.0) in process.run(10, turning=False, share=0.04)


def test_cpu_use_in_an_earlier_window_does_not_count(process: Process) -> None:
    process.run(10, turning=False, share=1.0)
    assert process.run(10, turning=False, share=0.0)[-1] == Stuck(20.0)


def test_a_turn_of_the_loop_restarts_the_count(process: Process) -> None:
    process.run(9, turning=False, share=0.0)
    process.run(1, turning=True, share=0.0)
    assert set(process.run(9, turning=False, share=0.0)) == {Ok()}


def test_an_import_has_a_longer_limit(process: Process) -> None:
    """An import may download a model over a slow network. After the longer limit the process counts as stuck too."""
    process = Process()
    assert process.run(31, turning=False, share=0.0) == [Ok()] * 30 + [Stuck(30.0)]


def test_an_import_that_uses_cpu_is_slow(process: Process) -> None:
    process = Process()
    assert process.run(31, turning=False, share=0.9)[-1] == Slow(30.0)


def test_time_in_which_the_whole_container_is_frozen_does_not_count(process: Process) -> None:
    """The clock advances, but there is no check in that time."""
    process.now += 3600
    assert process.run(7, turning=False, share=0.0) == [Ok()] * 7
