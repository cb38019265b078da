"""A function that runs a handler as an attempt of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.support import a_task
from worker.handlers.attempt import AttemptRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Outcome, Task


def run(handler: Callable[..., Any], task: Task | None = None, **kwargs: Any) -> Outcome:
    runner = AttemptRunner(handler, kwargs, 3)
    runner.begin()
    return runner.run(task or a_task())
