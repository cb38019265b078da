"""Request headers that come back on the answer, such as a trace or a correlation id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.process.dead_letters import size_of_headers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from worker.core.model import Headers


class Echo:
    """Select the headers of an answer from those of its request. Call it only for a request with headers."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def of(self, headers: Headers, room: int) -> Headers:
        """Return the headers to echo, in order and byte for byte; none if they would take more than ``room`` bytes.

        The answer matters more than its trace, so a result never fails because of its headers.
        """
        echoed = tuple([header for header in headers if header[0] in self._names])
        return echoed if size_of_headers(echoed) <= room else ()
