"""A stand-in for an executor with an extra slot."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tests.process_fake.stand_ins import StandInExecutor
from worker.executors.port import Running
from worker.isolation.policy import BRIEF_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.model import Task


class Slotted(StandInExecutor):
    """A stand-in with one extra slot, like the executor with child processes."""

    slots, long_after = 1, 3.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._aside: list[Any] = []
        self._reasons: dict[int, Any] = {}
        self._quiet = False

    @property
    def beside(self) -> Sequence[Running]:  # type: ignore[override]
        return [Running(one[0], self._clock() - one[2], one[:1]) for one in self._aside]

    def check(self) -> Any:
        running = self.running
        free = not self.closed and len(self._aside) < self.slots
        if running is None or not free or running.seconds < BRIEF_SECONDS:
            return ()
        if any(one.is_long(self.long_after) for one in (running, *self.beside)):
            if running.task.group is not None:
                running.task.group.set_aside()
            self._aside.append(self._current)
            self._reasons[id(self._current)] = self._reason
            self._current, self._reason = None, None
            self._serve()
        return ()

    def _serve(self) -> None:
        if not self._quiet:
            super()._serve()

    def _finish_after(self, seconds: float) -> None:
        current = self._current
        self._clock.after(seconds, lambda: self._end(current))

    def _end(self, current: Any) -> None:
        if self._current is current and current is not None:
            self._finish()
        elif any(one is current for one in self._aside):
            self._aside = [one for one in self._aside if one is not current]
            kept = self._current, self._reason
            self._current, self._reason = current, self._reasons.pop(id(current))
            self._quiet = True
            self._finish()
            self._quiet = False
            self._current, self._reason = kept
            self._notify()

    def kill(self) -> None:
        super().kill()
        self._aside = []

    def cancel(self, reason: Any, claims: Any = None) -> list[Task]:
        cancelled = super().cancel(reason, claims)
        for one in self._aside:
            if claims is None or one[0].claim in claims:
                if self._reasons[id(one)] is None:
                    self._reasons[id(one)] = reason
                    if one[1].obeys is not None:
                        self._clock.after(one[1].obeys, functools.partial(self._end, one))
                cancelled.append(one[0])
        return cancelled
