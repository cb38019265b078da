"""Track the tasks sent to a child process, to know which ended and which one to blame if the child dies.

Tasks are numbered from 1 in the order in which they are sent to a child. The child announces a task's number before it
starts the task, and reports the ends in the same order. So if it dies, the tasks up to the announced number that have
no reported end had started. All later ones had not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")


class OutOfOrderError(Exception):
    """The child reported the end of a task that is not next, so none of its reports can be trusted."""


class Death(NamedTuple, Generic[T]):
    """What happens to the tasks in flight when their child dies, each group in order.

    ``culprits`` had started and not ended: at most one, unless reports were lost. ``innocents`` had not started.
    """

    culprits: list[T]
    innocents: list[T]


class InFlight(Generic[T]):
    """The tasks that one child has. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, T]] = deque()
        self.next = 1  # the number of the task that is sent next

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iter(self._rows)

    @property
    def first(self) -> int:
        """Return the lowest number without an end; ``next`` if there is none."""
        return self._rows[0][0] if self._rows else self.next

    def send(self, tasks: Sequence[T]) -> int:
        """Record that tasks are sent to the child. Return the number of the first."""
        first = self.next
        self.next += len(tasks)
        self._rows.extend(zip(range(first, self.next), tasks, strict=True))
        return first

    def running(self, started: int) -> tuple[int, T] | None:
        """Return the running task, given the last announced number ``started``; None between two tasks."""
        try:
            row = self._rows[0]
        except IndexError:
            return None
        return row if row[0] <= started else None

    def finished(self, number: int) -> T:
        """Record the end of a task. Raise OutOfOrderError if it is not the first in flight."""
        if not self._rows or self._rows[0][0] != number:
            raise OutOfOrderError(f"the end of task {number} was reported; {self.first} is next")
        return self._rows.popleft()[1]

    def skipped(self, number: int) -> T | None:
        """Record that the child skipped a task; return None if it was withdrawn before. Raise as ``finished``."""
        return None if number < self.first else self.finished(number)

    def withdraw(self, started: int) -> list[T]:
        """Take back the tasks that have not started, in order."""
        rows, back = self._rows, []
        while rows and rows[-1][0] > started:
            back.append(rows.pop()[1])
        back.reverse()
        return back

    def settle_death(self, started: int) -> Death[T]:
        """Clear the tasks in flight after the child has died and all its reports are read."""
        innocents = self.withdraw(started)
        culprits = [task for _, task in self._rows]
        self._rows.clear()
        return Death(culprits, innocents)
