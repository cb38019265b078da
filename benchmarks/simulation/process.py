"""A worker process: the order in which it runs requests, and its reaction to a long task."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

    import simpy

    from benchmarks.simulation.group import Group, Partition, Request


LOOK_AGAIN = 1.0  # seconds, while no process can take the work


class Policy(NamedTuple):
    """A policy. A task is long after ``long_after`` seconds. With ``detach``, its process then gives way.

    ``slots`` are extra ones beside long tasks. With ``central``, all processes share one queue instead of partitions.
    """

    name: str
    long_after: float = math.inf
    detach: bool = False
    slots: int = 0
    central: bool = False


class Running:
    """A task in a slot. ``left`` is the CPU time that it still needs, in seconds."""

    __slots__ = ("left", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.left = request.seconds


class Results:
    """The results of the started requests, in the order of their starts, and the total times of the ended ones."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.waited: list[float] = []  # from sent to started
        self.took: list[tuple[Request, float]] = []  # from sent to ended
        self.detached_seconds = 0.0  # of all tasks together
        self.detached = 0

    def started(self, request: Request, now: float) -> None:
        self.requests.append(request)
        self.waited.append(now - request.sent)

    def ended(self, request: Request, now: float) -> None:
        self.took.append((request, now - request.sent))


class Process:
    """A process with one CPU. A task that is not long has it alone; long tasks share the rest."""

    def __init__(self, env: simpy.Environment, group: Group, policy: Policy, results: Results) -> None:
        self.phase = 0.0
        self.target = 0
        self.owned: dict[int, Partition] = {}
        self._env = env
        self._group = group
        self._policy = policy
        self._results = results
        self._ready: deque[Partition] = deque()  # partitions with requests, which take turns
        self._wakeup = env.event()
        self._young: Running | None = None
        self._long: list[Running] = []
        self._young_ends = 0.0
        self._away_since = -1.0
        self._busy_since = -1.0
        self._busy_seconds = 0.0

    # -- partitions

    def added(self, partition: Partition) -> None:
        if partition.requests:
            self.arrived(partition)

    def removed(self, partition: Partition) -> None:
        if partition in self._ready:
            self._ready.remove(partition)

    def arrived(self, partition: Partition) -> None:
        """React to the first request in a partition of this process."""
        self._ready.append(partition)
        if not self._wakeup.triggered:
            self._wakeup.succeed()

    def release_at(self, partition: Partition) -> float:
        """Return when a partition is free: after its running task, or at once if the task can be detached."""
        now = self._env.now
        running = self._young
        if running is None or running.request.partition != partition.number:
            long = [task for task in self._long if task.request.partition == partition.number]
            if not long or self._policy.detach or self._policy.slots:
                return float(now)
            return float(now + long[0].left)
        return self._young_ends

    # -- tasks

    def run(self) -> Generator[simpy.Event, object, None]:
        """Run tasks without end."""
        while True:
            if self._ready and len(self._long) <= self._policy.slots:
                yield from self._run_next()
            elif self._long:
                yield from self._run_long_ones()
            else:
                yield self._wait()

    def _wait(self) -> simpy.Event:
        if self._wakeup.triggered:
            self._wakeup = self._env.event()
        return self._wakeup if not self._ready else self._env.timeout(0)

    def _run_next(self) -> Generator[simpy.Event, object, None]:
        partition = self._ready.popleft()
        request = partition.requests.popleft()
        if partition.requests:
            self._ready.append(partition)
        task = self._young = Running(request)
        self._results.started(request, self._env.now)
        self._busy_since = self._env.now
        part = min(task.left, self._policy.long_after)
        self._young_ends = self._env.now + part
        yield self._env.timeout(part)
        self._young = None
        self._rest()
        task.left -= part
        if task.left > 1e-9:  # noqa: PLR2004 - rounding
            self._long.append(task)
        else:
            self._end(task)

    def _run_long_ones(self) -> Generator[simpy.Event, object, None]:
        """Run long tasks until one ends, or there is something else to do."""
        self._consider_giving_way()
        self._busy_since = begin = self._env.now
        count = len(self._long)
        end = self._env.timeout(min(task.left for task in self._long) * count)
        yield self._until(end, count)
        passed = self._env.now - begin
        self._rest()
        for task in self._long:
            task.left -= passed / count
        for task in [task for task in self._long if task.left <= 1e-9]:  # noqa: PLR2004 - rounding
            self._long.remove(task)
            self._end(task)
        if not self._long and self._away_since >= 0:
            self._results.detached_seconds += self._env.now - self._away_since
            self._away_since = -1.0
            self._group.take_part(self)

    def _until(self, end: simpy.Event, count: int) -> simpy.Event:
        """Return an event for the end of a long task, or an earlier reason to check the state."""
        may_give_way = self._policy.detach and self._away_since < 0
        if may_give_way and self._ready:
            return end | self._env.timeout(LOOK_AGAIN)
        if may_give_way or count <= self._policy.slots:
            return end | self._wait()
        return end

    def _consider_giving_way(self) -> None:
        """Give way if a request waits behind a long task without a free slot, and another process can take it."""
        slots_left = len(self._long) <= self._policy.slots
        waits = self._ready and not slots_left and self._away_since < 0
        if self._policy.detach and waits and len(self._group.active) > 1:
            self._away_since = self._env.now
            self._results.detached += len(self._long)
            self._group.give_way(self)

    def _end(self, task: Running) -> None:
        self._results.ended(task.request, self._env.now)

    def _rest(self) -> None:
        self._busy_seconds += self._env.now - self._busy_since
        self._busy_since = -1.0

    @property
    def busy_seconds(self) -> float:
        """Return the seconds for which this process has run tasks so far."""
        return self._busy_seconds + (self._env.now - self._busy_since if self._busy_since >= 0 else 0.0)
