"""The checks of ``worker doctor`` for handlers in child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.cli.checks import Check, fail, ok, warn
from worker.core.limits import MIB
from worker.errors import HandlerError, WorkerError
from worker.isolation.config import ChildConfig
from worker.isolation.parent import Template
from worker.supervisor import cgroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.settings import Settings

BESIDE_TASKS = 60 * MIB  # approximate bytes of a worker process and its template


def examine(settings: Settings, processes: int) -> Iterator[Check]:
    """Check whether children can be forked, and whether their limits fit into the container."""
    yield forking(settings)
    limit = cgroup.memory_limit()
    if limit is not None:
        children = processes * (1 + settings.extra_slots)
        yield memory(limit, processes, children, settings.task_memory, kills_together=cgroup.kills_together())


def forking(settings: Settings) -> Check:
    """Import the handler in a template process, as a worker process does."""
    config = ChildConfig(settings.handler, settings.handler_kwargs, 1, [], "ERROR", "console", "doctor")
    try:
        template = Template(config)
    except HandlerError as error:
        return fail("isolation", str(error), error.exit_code)
    except WorkerError as error:
        return fail("isolation", f"no child process can be started: {error}", error.exit_code)
    template.close()
    if template.obstacles:
        text = "every child process imports the handler itself, because the import leaves what cannot be forked: "
        return warn("isolation", text + ", ".join(template.obstacles))
    return ok("isolation", "child processes are forked after the import of the handler")


def memory(limit: int, processes: int, children: int, task_memory: int, *, kills_together: bool) -> Check:
    """Compare the container's limit with the memory its processes may use, in bytes. ``children`` of them run tasks."""
    how = f"the container has {limit // MIB} MiB"
    if not task_memory:
        if kills_together:
            text = (
                f"{how}, and the kernel kills all of its processes when it runs out of memory: set WORKER_TASK_MEMORY"
            )
            return warn("memory", text)
        return ok("memory", f"{how}; tasks have no limit (WORKER_TASK_MEMORY)")
    need = processes * BESIDE_TASKS + children * task_memory
    if need > limit:
        text = f"{how}, but its processes with {children} tasks of WORKER_TASK_MEMORY may use {need // MIB} MiB"
        return warn("memory", f"{text}: lower WORKER_TASK_MEMORY or WORKER_PROCESSES, or raise the limit")
    return ok("memory", f"{how}; {need // MIB} MiB are enough for {children} tasks with WORKER_TASK_MEMORY")
