"""The values that all classes of a worker process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.core.assignment import Assignment
from worker.core.guarantee import GUARANTEES
from worker.core.lifecycle import Lifecycle
from worker.metrics import Metrics
from worker.process.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from worker.core.guarantee import Guarantee
    from worker.process.config import ProcessConfig


@dataclass(frozen=True, slots=True)
class Shared:
    """The settings, the state and the clock of one worker process. Only the poll thread changes them."""

    config: ProcessConfig
    token: str  # of this process in its group; no other process has it
    guarantee: Guarantee
    clock: Callable[[], float]  # seconds, never going backwards
    assignment: Assignment
    lifecycle: Lifecycle
    metrics: Metrics
    task_log: TaskLog

    @classmethod
    def of(cls, config: ProcessConfig, clock: Callable[[], float], token: str) -> Self:
        """Return the values of a new process, which owns no partition yet."""
        assignment = Assignment(config.ordering, batches=config.batch_size > 1)
        return cls(config, token, GUARANTEES[config.guarantee], clock, assignment, Lifecycle(), Metrics(), TaskLog())
