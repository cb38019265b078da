"""Simulations of several processes with random faults. The same seed gives the same run.

``SIMULATION_SEEDS`` is the number of seeds.
"""

from __future__ import annotations

import collections
import itertools
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS, DEAD, Process, World
from worker.core.commit_metadata import decode
from worker.core.model import Partition, Verdict
from worker.process.status_block import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.codec import Response
    from worker.core.model import Record
    from worker.kafka.ports import Position

SEEDS = range(int(os.environ.get("SIMULATION_SEEDS", "2")))
ORDERINGS = ("partition", "key", "unordered")
PARTITIONS = 3
SESSION = 40.0  # seconds until the group removes a member that does not poll
TROUBLE_SECONDS = 300.0
HEALING_SECONDS = 2_000.0


class Simulation:
    """Requests that come all the time, and processes that join and leave."""

    def __init__(self, seed: int, ordering: str) -> None:
        self.random, self.ordering = random.Random(f"{seed} {ordering}"), ordering
        self.done: collections.defaultdict[Partition, set[int]] = collections.defaultdict(set)  # known to be answered
        self.world = World(PARTITIONS)
        self.processes: list[Process] = []
        self.faults: collections.Counter[str] = collections.Counter()
        self.requests = [0] * PARTITIONS
        self.early: list[tuple[Partition, int]] = []  # commits that passed an unanswered request
        self._watch_commits()
        for _ in range(2):
            self.join()

    def _watch_commits(self) -> None:
        group = self.world.broker.group("group")
        commit = group.commit

        def watched(member: Any, positions: Mapping[Partition, Position]) -> Any:
            for partition, position in positions.items():
                noted = decode(position.metadata, position.offset)
                passed = itertools.chain(range(position.offset), *(range(*there) for there in noted.completed))
                done = self.done[partition]
                if not done.issuperset(passed):
                    done.update(answer.origin.offset for answer in self.world.answers() if _is_of(answer, partition))
                if not done.issuperset(passed):
                    self.early.append((partition, position.offset))
            return commit(member, positions)

        group.commit = watched  # type: ignore[method-assign]

    @property
    def alive(self) -> list[Process]:
        return [p for p in self.processes if not p.killed and p.exit_code is None and p.error is None]

    # -- events

    def join(self) -> None:
        options: dict[str, Any] = {"retry_first": 1.0, "retry_greatest": 20.0, "ordering": self.ordering}
        self.processes.append(self.world.process(started=True, hold=30.0, max_poll_interval=SESSION, **options))

    def request(self) -> None:
        number = self.random.randrange(PARTITIONS)
        self.requests[number] += 1
        kind, key = self.random.random(), self.random.choice([None, b"a", b"b", b"c"])
        if kind < 0.03:
            self.world.raw(self.random.choice([None, b"", b"\xff"]), number, key=key)
            return
        seconds = self.random.choice([0.0, 0.01, 0.3, 2.0, 12.0])
        attempts = [Work(seconds, self.random.choice([Verdict.FAILED] + [Verdict.OK] * 4)) for _ in range(3)]
        if kind < 0.06:
            attempts = [Work(seconds, Verdict.REJECTED)]
        self.world.request(f"{self.requests}", number, work=attempts, key=key)

    def drain(self) -> None:
        if len(self.alive) > 1:
            self.random.choice(self.alive).order(Command.DRAIN)

    def kill(self) -> None:
        self.random.choice(self.alive).kill()
        self.join()

    def fence(self) -> None:
        self.world.broker.group("group").leave(self.random.choice(self.alive).consumer)

    def outage(self) -> None:
        self.world.broker.leave(self.random.uniform(0.1, SESSION * 1.5))

    def failed_deliveries(self) -> None:
        topic, applied = self.random.choice([ACKS, DEAD]), self.random.random() < 0.3
        self.world.broker.fail(topic, "_MSG_TIMED_OUT", self.random.randint(1, 5), applied=applied)

    def failed_commits(self) -> None:
        count, applied = self.random.randint(1, 3), self.random.random() < 0.5
        self.world.broker.fail_commits("REQUEST_TIMED_OUT", count, applied=applied)

    def slow_answers(self) -> None:
        self.world.broker.topics[ACKS].delay = self.random.choice([0.001, 0.2, 3.0])

    # -- the run

    def run(self, *events: Callable[[Simulation], None]) -> None:
        """Cause faults for a while, then wait until everything is answered and committed."""
        end = self.world.clock() + TROUBLE_SECONDS
        while self.world.clock() < end:
            self.world.run(self.random.expovariate(1.0))
            self.request()
            if self.random.random() < 0.1:
                event = self.random.choice(events)
                self.faults[event.__name__] += 1
                event(self)
            if not self.alive:
                self.join()
        self.world.broker.topics[ACKS].delay = 0.001
        self.world.until(self._settled, HEALING_SECONDS)

    def _settled(self) -> bool:
        return [self.world.committed(number) or 0 for number in range(PARTITIONS)] == self.requests

    # -- the laws

    def check(self) -> None:
        """Check what must hold after any faults."""
        assert [process.error for process in self.processes if process.error] == []
        assert self.early == [], "committed past a request without an answer"
        expected = {(number, offset) for number in range(PARTITIONS) for offset in range(self.requests[number])}
        assert set(self.world.answered()) == expected, "lost, or answered without being asked"
        for process in self.processes:
            check_order(process, self.ordering)


def check_order(process: Process, ordering: str) -> None:
    """Check each lease: an ordering group starts in offset order, and a repeated offset is the next attempt."""
    last: dict[Any, tuple[int, int]] = {}
    for _, task, attempt in process.service.started:
        here, group = (task.record.offset, attempt), (task.claim, _group_of(task.record, ordering))
        offset, attempts = last.get(group, (-1, 0))
        assert here > (offset, attempts), f"{here} after {(offset, attempts)}"
        # A former owner's attempts count too, so the first start under a lease may be any attempt.
        assert here[0] != offset or here == (offset, attempts + 1), "an attempt was not counted"
        last[group] = here


def _group_of(record: Record, ordering: str) -> object:
    """Return the ordering group of a record."""
    if ordering == "partition":
        return None
    return record.key if ordering == "key" and record.key is not None else record.offset


def _is_of(answer: Response, partition: Partition) -> bool:
    return bool(answer.origin.partition == partition.number)


@pytest.fixture
def simulation(seed: int, ordering: str) -> Any:
    one = Simulation(seed, ordering)
    yield one
    one.world.clock.close()


ALL = (
    Simulation.join,
    Simulation.drain,
    Simulation.kill,
    Simulation.fence,
    Simulation.outage,
    Simulation.failed_deliveries,
    Simulation.failed_commits,
    Simulation.slow_answers,
)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_is_lost_under_random_faults(simulation: Simulation) -> None:
    """Every request is answered at least once, no commit passes an unanswered request, and the order is kept."""
    simulation.run(*ALL)
    simulation.check()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_attempt_is_made_twice_without_a_fault(simulation: Simulation) -> None:
    """Processes that join and drain cause no second start of an attempt, and no second answer to a request."""
    simulation.run(Simulation.join, Simulation.drain, Simulation.slow_answers)
    simulation.check()
    answered = collections.Counter(simulation.world.answered())
    assert [place for place, count in answered.items() if count > 1] == []
    starts = collections.Counter(start for process in simulation.processes for start in process.starts)
    assert [start for start, count in starts.items() if count > 1] == [], "an attempt was made twice"
