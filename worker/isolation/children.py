"""Starts one child after another, and decides what the death of a child means for its task."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import structlog

from worker.core.limits import failure_of, how_it_ended
from worker.core.model import Outcome
from worker.formats import FORMATS
from worker.isolation.link import Link
from worker.isolation.output import since
from worker.isolation.parent import End, Template, TemplateDiedError

if TYPE_CHECKING:
    from worker.core.limits import Limits
    from worker.core.model import Task
    from worker.isolation.config import ChildConfig

LAST_OUTPUT = "Last output of the process:"
FRUITLESS = 5  # children in a row that die before they have run a task

log = structlog.get_logger("isolation")


class Children:
    """Use it from one thread at a time. Only ``template`` is read by other threads."""

    def __init__(self, config: ChildConfig, wakeup: int) -> None:
        """Import the handler in the template process. Raise HandlerError, TemplateDiedError or RefusedProcessError.

        ``wakeup`` is the eventfd by which children wake the poll thread.
        """
        self.template = self._start(config)
        self._wakeup = wakeup
        self._config = config
        self._fruitless = 0

    @staticmethod
    def _start(config: ChildConfig) -> Template:
        template = Template(config)
        if template.obstacles:
            log.warning("isolation.cannot_fork", found=template.obstacles)
        return template

    def next(self) -> Link:
        """Return another child, from a new template if the old one has died. Raise as ``__init__``."""
        try:
            child = self.template.fork(self._wakeup)
        except TemplateDiedError:
            self.template.close()
            self.template = self._start(self._config)
            child = self.template.fork(self._wakeup)
        return Link(child, self._config.topics)

    def end_of(self, link: Link) -> End:
        """Return how a child ended, after it has. Everything that it started is gone by then."""
        try:
            end = link.child.end()
        except TemplateDiedError:  # and the child died with it
            end = End(-signal.SIGKILL, 0.0)
        words = since(0.0, end.printed) if link.end_cause == "crash" else ""
        fields = {"output": words} if words else {}
        log.info("child.ended", pid=link.child.pid, ending=how_it_ended(end.status), cause=link.end_cause, **fields)
        return end

    def count(self, link: Link, *, blamed: bool) -> None:
        """Count an end. Raise TemplateDiedError if children die again and again and no task can be blamed."""
        fruitless = not (blamed or link.ended or link.cause is not None or link.retired_at is not None)
        self._fruitless = self._fruitless + 1 if fruitless else 0
        if self._fruitless >= FRUITLESS:
            raise TemplateDiedError(f"{FRUITLESS} child processes in a row ended before they ran a task")


def outcome_of_death(link: Link, task: Task, limits: Limits, end: End, message_format: str) -> Outcome:
    """Return the outcome of the attempt that ran when its child died."""
    cause = link.cause if end.status == -signal.SIGKILL else None
    crash = link.child.crash()
    words = since(link.started_at, end.printed)
    traceback = "\n\n".join([*([crash] if crash else []), *([f"{LAST_OUTPUT}\n{words}"] if words else [])])
    verdict, failure = failure_of(cause, end.status, limits, traceback)
    ran = max(0.0, time.monotonic() - link.started_at)
    now = time.time_ns()
    return Outcome(
        task,
        verdict,
        FORMATS[message_format].sequence_of(task.record.value),
        now - int(ran * 1e9),
        failure=failure,
        finished_ns=now,
        run_seconds=ran,
        cpu_seconds=min(ran, end.cpu_seconds),
    )
