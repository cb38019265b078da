"""A broken invariant, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from chaos.evidence import RecordId

_SHOWN = 8


class Violation(NamedTuple):
    """The broken invariant, a description, and the requests involved."""

    invariant: str
    text: str
    records: tuple[RecordId, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(f"{partition}:{offset}" for partition, offset in self.records[:_SHOWN])
        more = f" and {len(self.records) - _SHOWN} more" if len(self.records) > _SHOWN else ""
        return f"{self.invariant}: {self.text}{f' [{shown}{more}]' if shown else ''}"


def violation_of(invariant: str, text: str, records: Collection[RecordId]) -> Iterator[Violation]:
    """Yield one violation for all these requests, or none if there are none."""
    if records:
        yield Violation(invariant, f"{text}: {len(records)}", tuple(sorted(records)))
