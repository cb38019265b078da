"""Counts which requests were answered and how often. It does not use Kafka."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.core.model import Partition

_NOT_OURS = 255
_MOST = 254  # answers counted per request at most


class Tally:
    """Counts answers by origin, with one byte per offset between our first and last request of a partition."""

    def __init__(self) -> None:
        self._firsts: dict[Partition, int] = {}
        self._answers: dict[Partition, bytearray] = {}
        self.sent = 0
        self.answered = 0  # requests with at least one answer
        self.duplicates = 0  # answers after the first
        self.outcomes: Counter[str] = Counter()  # of the first answers

    @property
    def open(self) -> int:
        """Return the number of requests without an answer."""
        return self.sent - self.answered

    def expect(self, partition: Partition, offset: int) -> None:
        """Count a request of ours. The offsets of a partition must rise."""
        row = self._answers.setdefault(partition, bytearray())
        first = self._firsts.setdefault(partition, offset)
        row.extend(bytes([_NOT_OURS]) * (offset - first - len(row)))
        row.append(0)
        self.sent += 1

    def answer(self, partition: Partition, offset: int, outcome: str) -> bool:
        """Count an answer to the request at this position. Return whether the request is ours."""
        row = self._answers.get(partition, bytearray())
        at = offset - self._firsts.get(partition, 0)
        if not 0 <= at < len(row) or row[at] == _NOT_OURS:
            return False
        count = row[at]
        row[at] = min(count + 1, _MOST)
        if count:
            self.duplicates += 1
        else:
            self.answered += 1
            self.outcomes[outcome] += 1
        return True

    def unanswered(self) -> Iterator[tuple[Partition, int]]:
        """Yield the origins of the requests without an answer."""
        for partition, row in self._answers.items():
            first = self._firsts[partition]
            yield from ((partition, first + at) for at, count in enumerate(row) if count == 0)


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text, with ranges: ``3-7, 12``."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
