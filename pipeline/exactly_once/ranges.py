"""Sets of numbers as ranges, which are small if the numbers are close together. Pure."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ranges:
    """A set of numbers, written as ``0-99,105``."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []  # inclusive
        self._join([(number, number) for number in numbers])

    def __contains__(self, number: int) -> bool:
        at = bisect.bisect_right(self._begins, number) - 1
        return at >= 0 and number <= self._ends[at]

    def __len__(self) -> int:
        return sum(end - begin + 1 for begin, end in self.spans())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranges) and self.spans() == other.spans()

    __hash__ = None  # type: ignore[assignment]  # because it is mutable

    def __str__(self) -> str:
        return ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in self.spans())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what ``str`` wrote. Raise ValueError for any other text."""
        found = cls()
        spans = [span.partition("-") for span in text.split(",") if span]
        found._join([(int(begin), int(end or begin)) for begin, _, end in spans])
        return found

    @classmethod
    def union(cls, sets: Iterable[Ranges]) -> Self:
        """Return the union of the sets."""
        found = cls()
        found._join([span for each in sets for span in each.spans()])
        return found

    def spans(self) -> list[tuple[int, int]]:
        """Return the first and the last number of each range."""
        return list(zip(self._begins, self._ends, strict=True))

    def _join(self, spans: list[tuple[int, int]]) -> None:
        every = sorted([*self.spans(), *spans])
        self._begins, self._ends = [], []
        for begin, end in every:
            if self._ends and begin <= self._ends[-1] + 1:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)
