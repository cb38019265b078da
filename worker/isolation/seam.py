"""Connects the parent's side to the claims and ordering groups of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.core.model import Outcome, Task
    from worker.isolation.frames import Ended


def may_start(task: Task) -> bool:
    """Return whether the partition is still ours to work on and the ordering group is not blocked."""
    group = task.group
    return not (task.claim.leaving or (group is not None and group.blocked))


def block(task: Task) -> None:
    """Block the ordering group of a task that has failed, or perhaps not started, until the poll thread has all of its
    tasks back.
    """
    if task.group is not None:
        task.group.blocked = True


def set_aside(task: Task) -> None:
    """Let the task continue beside others. No task of its ordering group starts before it ends."""
    if task.group is not None:
        task.group.set_aside()


def outcome_of(task: Task, ended: Ended) -> Outcome:
    """Return the outcome of our task that the child reported."""
    task.attempt = ended.attempt
    outcome = ended.outcome
    outcome.task = task
    return outcome
