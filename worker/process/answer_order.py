"""Keeps answers in order where one of them has to wait for other records to be delivered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from worker.core.model import Task

T = TypeVar("T")


class AnswerOrder(Generic[T]):
    """Holds answers back behind an earlier one of their partition or key that waits for a dead letter or follow-ups.

    Usually nothing waits, and ``rows`` is empty.
    """

    __slots__ = ("_changed", "_ordering", "held", "rows")

    def __init__(self, ordering: str) -> None:
        self._ordering = ordering
        self.held = 0  # answers that could be sent but for earlier ones
        self.rows: dict[Hashable, dict[Task, T | None]] = {}  # in order; None: the answer has to wait
        self._changed: set[Hashable] = set()  # rows whose head may be ready

    def wait(self, task: Task) -> None:
        """Record that the answer to this task has to wait, and later ones of its partition or key with it."""
        row = self._row_of(task)
        if row is not None:
            self._set(self.rows.setdefault(row, {}), task, None)

    def hold(self, task: Task, answer: T) -> bool:
        """Keep an answer until ``ready`` yields it. Return False if nothing precedes it, so that it may be sent now."""
        row = self._row_of(task)
        if row not in self.rows:
            return False
        self._set(self.rows[row], task, answer)
        self._changed.add(row)
        return True

    def drop(self, task: Task) -> None:
        """Record that there will be no answer to this task."""
        row = self._row_of(task)
        if row in self.rows:
            self._remove(self.rows[row], task)
            self._changed.add(row)

    def ready(self) -> Iterator[T]:
        """Yield the answers that nothing precedes any more. An answer that has to wait after all keeps its place."""
        while self._changed:
            row = self._changed.pop()
            answers = self.rows.get(row, {})
            while answers:
                task, answer = next(iter(answers.items()))
                if answer is None:
                    break
                yield answer
                if answers.get(task) is answer:
                    self._remove(answers, task)
            else:
                self.rows.pop(row, None)

    def _set(self, row: dict[Task, T | None], task: Task, answer: T | None) -> None:
        self.held += (answer is not None) - (row.get(task) is not None)
        row[task] = answer

    def _remove(self, row: dict[Task, T | None], task: Task) -> None:
        self.held -= row.pop(task, None) is not None

    def _row_of(self, task: Task) -> Hashable:
        """Return what identifies the order that this task belongs to; None if it has none.

        This is not ``task.group``, because a task gets another group when it is detached or its key was idle.
        """
        record = task.record
        if self._ordering == "partition":
            return record.partition
        return None if self._ordering == "unordered" or record.key is None else (record.partition, record.key)
