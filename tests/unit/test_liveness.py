"""Slow or stuck."""

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
        """The verdicts while it behaves so, checked once a second."""
        verdicts = []
        for _ in range(seconds):
            self.now += 1
            self.turns += turning
            self.cpu += share
            verdicts.append(self.liveness.check(self.turns, self.cpu, self.now))
        return verdicts


@pytest.fixture
def process() -> Process:
    """A process that has turned for a while."""
    process = Process()
    process.run(5, turning=True, share=0.5)
    return process


def test_one_that_turns_is_fine_though_it_uses_no_cpu(process: Process) -> None:
    assert set(process.run(100, turning=True, share=0.0)) == {Ok()}


def test_one_that_neither_turns_nor_uses_cpu_is_stuck(process: Process) -> None:
    assert process.run(10, turning=False, share=0.0) == [Ok()] * 9 + [Stuck(10.0)]


def test_one_that_uses_cpu_stays_slow(process: Process) -> None:
    """Reported once per window."""
    verdicts = [verdict for verdict in process.run(35, turning=False, share=0.06) if verdict != Ok()]
    assert verdicts == [Slow(10.0), Slow(20.0), Slow(30.0)]


def test_heartbeats_of_the_client_are_no_work(process: Process) -> None:
    assert Stuck(10.0) in process.run(10, turning=False, share=0.04)


def test_work_done_before_does_not_excuse_for_long(process: Process) -> None:
    process.run(10, turning=False, share=1.0)
    assert process.run(10, turning=False, share=0.0)[-1] == Stuck(20.0)


def test_a_turn_starts_the_count_again(process: Process) -> None:
    process.run(9, turning=False, share=0.0)
    process.run(1, turning=True, share=0.0)
    assert set(process.run(9, turning=False, share=0.0)) == {Ok()}


def test_an_import_has_longer(process: Process) -> None:
    """It may fetch a model over a slow network; after that it counts as stuck too."""
    process = Process()
    assert process.run(31, turning=False, share=0.0) == [Ok()] * 30 + [Stuck(30.0)]


def test_a_heavy_import_is_slow(process: Process) -> None:
    process = Process()
    assert process.run(31, turning=False, share=0.9)[-1] == Slow(30.0)


def test_time_in_which_the_whole_container_was_frozen_does_not_count(process: Process) -> None:
    """The clock has gone on, but there was no check in between."""
    process.now += 3600
    assert process.run(7, turning=False, share=0.0) == [Ok()] * 7
