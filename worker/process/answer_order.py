"""Keeps answers in order where one of them has to wait for other records. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from worker.core.model import Task
    from worker.core.ordering_group import OrderingGroup

T = TypeVar("T")


class _Turn(Generic[T]):
    """The place of an answer in its group. ``answer`` is None until it can be sent."""

    __slots__ = ("answer", "task")

    def __init__(self, task: Task, answer: T | None) -> None:
        self.task = task
        self.answer = answer


class AnswerOrder(Generic[T]):
    """Hold answers back behind an earlier one of their ordering group that waits for a dead letter or follow-ups.

    Only such groups have an entry here, so usually there is none.
    """

    __slots__ = ("turns",)

    def __init__(self) -> None:
        self.turns: dict[OrderingGroup[Task], deque[_Turn[T]]] = {}

    def wait_for(self, task: Task) -> None:
        """Let later answers of the group wait for the answer to this task."""
        group = task.group
        if group is None:
            return
        turns = self.turns.setdefault(group, deque())
        if all(turn.task is not task for turn in turns):
            turns.append(_Turn(task, None))

    def ready(self, task: Task, answer: T) -> list[T]:
        """Return the answers that can be sent now that this one is ready, in their order."""
        turns = self.turns.get(task.group) if task.group is not None else None
        if turns is None:
            return [answer]
        for turn in turns:
            if turn.task is task:
                turn.answer = answer
                break
        else:
            turns.append(_Turn(task, answer))
        return self._released(task)

    def drop(self, task: Task) -> list[T]:
        """Return the answers that can be sent now that there will be none to this task, in their order."""
        turns = self.turns.get(task.group) if task.group is not None else None
        if turns is None:
            return []
        for turn in [turn for turn in turns if turn.task is task]:
            turns.remove(turn)
        return self._released(task)

    def _released(self, task: Task) -> list[T]:
        assert task.group is not None
        turns, released = self.turns[task.group], []
        while turns and (answer := turns[0].answer) is not None:
            turns.popleft()
            released.append(answer)
        if not turns:
            del self.turns[task.group]
        return released
