"""The partitions whose states this process follows, and whether it has caught up. Used on the poll thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.state.port import Begin, CaughtUp
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from worker.core.model import Partition
    from worker.state.port import StateTopic
    from worker.state.table import Change

WAIT_SECONDS = 30.0  # after this time a partition starts without its states
ROUND_SECONDS = 5.0  # if the client does not repeat an assignment for this long, it was withdrawn

log = structlog.get_logger("states")


class _Request:
    """A partition that is about to start."""

    __slots__ = ("last", "number", "since")

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.since = self.last = now


class Followed:
    """The followed partitions. Without a state topic every partition starts at once."""

    def __init__(self, topic: StateTopic | None, clock: Callable[[], float]) -> None:
        self.table = StateTable()
        self._topic = topic
        self._clock = clock
        self._requested: dict[Partition, _Request] = {}
        self._following: set[Partition] = set()
        self._caught_up: dict[Partition, int] = {}
        self._number = 0

    def begin(self, partitions: Collection[Partition]) -> bool:
        """Return whether these may start: their states as of the first call are known, or cannot be read.

        Call ``began`` for each that starts, so that its next start reads them again.
        """
        if self._topic is None:
            return True
        now = self._clock()
        for place in partitions:
            self._request(place, now)
        return all(self._is_known(place) or now - self._requested[place].since >= WAIT_SECONDS for place in partitions)

    def began(self, place: Partition) -> None:
        """Record that a partition has started."""
        if place in self._requested and not self._is_known(place):
            log.warning("states.unavailable", partition=str(place))
        self._requested.pop(place, None)

    def _is_known(self, place: Partition) -> bool:
        return self._caught_up.get(place, 0) >= self._requested[place].number

    def _request(self, place: Partition, now: float) -> None:
        requested = self._requested.get(place)
        if requested is not None and now - requested.last < ROUND_SECONDS:
            requested.last = now
            return
        self._number += 1
        self._requested[place] = _Request(self._number, now)
        self._following.add(place)
        if self._topic is not None:
            self._topic.follow(place, self._number)

    def take_in(self) -> Iterator[Change]:
        """Yield every change that has arrived."""
        for news in self._topic.receive() if self._topic is not None else ():
            if isinstance(news, Begin):
                self._drop(news.place)
            elif isinstance(news, CaughtUp):
                self._caught_up[news.place] = news.number
            elif (change := self.table.apply(news.key, news.value)) is not None:
                if change.origin.place in self._following:
                    yield change
                else:
                    self._drop(change.origin.place)

    def forget(self, owned: Collection[Partition]) -> None:
        """Follow only these partitions and those that are about to start."""
        if len(self._following) <= len(owned) and not self._requested:
            return
        now = self._clock()
        for place, requested in list(self._requested.items()):
            if now - requested.last >= ROUND_SECONDS:
                del self._requested[place]
        for place in [place for place in self._following if place not in owned and place not in self._requested]:
            self._following.discard(place)
            self._caught_up.pop(place, None)
            self._drop(place)
            if self._topic is not None:
                self._topic.unfollow(place)

    def _drop(self, place: Partition) -> None:
        table = self.table
        for known in (table.states, table.cancels):
            for origin in [origin for origin in known if origin.place == place]:
                del known[origin]
