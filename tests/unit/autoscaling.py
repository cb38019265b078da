"""A simulation of HPA's published algorithm, and of the pods whose metrics it reads.

https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ ("Algorithm details", "Configurable scaling
behavior"). KEDA makes such an HPA from a ScaledObject.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TICK = 5  # seconds per step
SYNC, SCRAPE = 15, 30  # seconds between two decisions, and the age in seconds of their metrics
TOLERANCE = 0.1
STARTUP = 40  # seconds from a pod's creation to its first task


@dataclass
class Hpa:
    """The state of one HPA. ``targets`` are average values per pod, one for each metric."""

    targets: Sequence[float]
    least: int
    most: int
    behavior: dict[str, Any]
    _wanted: deque[tuple[int, int]] = field(default_factory=deque)  # time, recommendation
    _changes: list[tuple[int, int]] = field(default_factory=list)  # time, pods added

    def decide(self, now: int, current: int, totals: Sequence[float]) -> int:
        """Return the number of replicas from now on."""
        pairs = zip(totals, self.targets, strict=True)
        wanted = max(self._by_metric(current, total, target) for total, target in pairs)
        wanted = min(self.most, max(self.least, wanted))
        self._wanted.append((now, wanted))
        wanted = self._stabilized(now, current)
        wanted = min(wanted, self._limit(now, current, "scaleUp")) if wanted > current else wanted
        wanted = max(wanted, self._limit(now, current, "scaleDown")) if wanted < current else wanted
        if wanted != current:
            self._changes.append((now, wanted - current))
        return wanted

    @staticmethod
    def _by_metric(current: int, total: float, target: float) -> int:
        ratio = total / (target * current)
        return current if abs(ratio - 1) <= TOLERANCE else math.ceil(total / target)

    def _stabilized(self, now: int, current: int) -> int:
        """Return the least recommendation in the window to scale up, or the greatest one to scale down."""
        up, down = (self.behavior[name].get("stabilizationWindowSeconds", 0) for name in ("scaleUp", "scaleDown"))
        least = min(wanted for at, wanted in self._wanted if now - at <= up)
        greatest = max(wanted for at, wanted in self._wanted if now - at <= down)
        while self._wanted and now - self._wanted[0][0] > max(up, down):
            self._wanted.popleft()
        return max(current, least) if least > current else min(current, greatest)

    def _limit(self, now: int, current: int, direction: str) -> int:
        """Return the number of replicas that the most generous policy allows."""
        up = direction == "scaleUp"
        limits: list[int] = []
        for policy in self.behavior[direction]["policies"]:
            recent = [by for at, by in self._changes if now - at < policy["periodSeconds"] and (by > 0) == up]
            before, value = current - sum(recent), policy["value"]
            if policy["type"] == "Pods":
                limits.append(before + value if up else before - value)
            else:
                limits.append(math.ceil(before * (1 + value / 100)) if up else math.floor(before * (1 - value / 100)))
        return max(limits) if up else min(limits)


@dataclass
class Pod:
    """A pod. ``tasks`` are the remaining seconds of each running task."""

    ready_at: int
    tasks: list[int] = field(default_factory=list)
    leaves_by: float = math.inf  # when the pod is killed; infinity while it does not drain


@dataclass
class Report:
    """The result of a simulation.

    ``replicas`` are the replicas at each step, ``cut`` is the number of killed tasks, and ``too_few`` that of decisions
    to scale in to fewer slots than running tasks. ``reversals`` says how often pods were added after a removal, and
    ``unfinished`` how many tasks did not end.
    """

    replicas: list[int]
    cut: int
    too_few: int
    reversals: int
    unfinished: int


def simulate(hpa: Hpa, arrivals: dict[int, list[int]], *, seconds: int, slots: int, grace: int) -> Report:
    """Simulate requests that arrive (second: durations) at pods with ``slots``. Each removal takes the busiest pod."""
    pods, queue = [Pod(0) for _ in range(hpa.least)], deque[int]()
    past: deque[tuple[float, float]] = deque([(0.0, 0.0)] * (SCRAPE // TICK))
    report, shrinking = Report([], 0, 0, 0, 0), False
    for now in range(0, seconds, TICK):
        queue.extend(itertools.chain.from_iterable(arrivals.get(now + second, ()) for second in range(TICK)))
        report.cut += _work(pods, queue, now, slots)
        running = sum(len(pod.tasks) for pod in pods)
        past.append((len(queue) + running, running))
        totals = past.popleft()
        stay = [pod for pod in pods if pod.leaves_by == math.inf]
        if now % SYNC == 0:
            wanted = hpa.decide(now, len(stay), totals)
            report.too_few += wanted < min(len(stay), math.ceil(totals[1] / slots))
            report.reversals += shrinking and wanted > len(stay)
            shrinking = wanted < len(stay) or (shrinking and wanted == len(stay))
            pods += [Pod(now + STARTUP) for _ in range(wanted - len(stay))]
            for pod in sorted(stay, key=lambda pod: -len(pod.tasks))[: max(0, len(stay) - wanted)]:
                pod.leaves_by = now + grace
        report.replicas.append(sum(pod.leaves_by == math.inf for pod in pods))
    report.unfinished = len(queue) + sum(len(pod.tasks) for pod in pods)
    return report


def _work(pods: list[Pod], queue: deque[int], now: int, slots: int) -> int:
    """Advance every pod by a step. Return how many tasks were killed at the end of a grace period."""
    cut = 0
    for pod in list(pods):
        pod.tasks = [left - TICK for left in pod.tasks if left > TICK]
        if pod.leaves_by < math.inf:
            if not pod.tasks or now >= pod.leaves_by:
                cut += len(pod.tasks)
                queue.extendleft([3_600] * len(pod.tasks))  # a killed task starts again
                pods.remove(pod)
        elif now >= pod.ready_at:
            while queue and len(pod.tasks) < slots:
                pod.tasks.append(queue.popleft())
    return cut
