"""One member of a group on the fake broker."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from worker.core.model import End

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.fakes.broker import FakeBroker
    from tests.fakes.group import Group
    from worker.core.model import Partition, Record
    from worker.kafka.ports import KafkaFailure, Listener, Position

_names = itertools.count(1)
_Answer = tuple["Mapping[Partition, Position]", "KafkaFailure | None"]


class FakeConsumer:
    """See ``worker.kafka.ports.Consumer``. As with the real client, callbacks run inside ``poll`` and ``close``."""

    def __init__(self, broker: FakeBroker, group: Group, max_poll_interval: float) -> None:
        self.name = f"member-{next(_names)}"
        self.protocol = "consumer"
        self.stale = False
        self.topics: list[str] = []
        self.quota = 0
        self.paused: set[Partition] = set()
        self.closed = False
        self._broker, self._group, self._clock = broker, group, broker.clock
        self._max_poll_interval = max_poll_interval
        self._polled_at = broker.clock()
        self._listener: Listener | None = None
        self._positions: dict[Partition, int] = {}  # of what we believe to own
        self._ended: dict[Partition, int] = {}  # the ends that were told of
        self._flows_at: dict[Partition, float] = {}
        self._answers: list[_Answer] = []
        self._kept: BaseException | None = None

    # -- the port

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        self.topics, self._listener = list(topics), listener
        self._polled_at = self._clock()
        self._group.join(self)

    def poll(self, limit: int, timeout: float) -> list[Record | End]:
        assert not self.closed
        assert limit > 0
        self._group.expire()
        self._polled_at = self._clock()
        self._serve()
        records = self._fetch(limit)
        if not records and timeout > 0 and self._kept is None:
            self._clock.wait(timeout, until=self._something_to_do)
            self._serve()
            records = self._fetch(limit)
        self._polled_at = self._clock()
        self._check()
        self._take(records)
        return [*records, *self._ends()]

    def pause(self, partitions: Sequence[Partition]) -> None:
        self.paused |= {partition for partition in partitions if partition in self._positions}

    def resume(self, partitions: Sequence[Partition]) -> None:
        for partition in self.paused & set(partitions):
            self._flows_at[partition] = self._clock() + self._broker.resume_delay
        self.paused -= set(partitions)

    def end(self, partition: Partition) -> int:
        return self._broker.topics[partition.topic].ends[partition] if partition in self._positions else -1

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self._send(positions, lambda failure: self._answers.append((dict(positions), failure)))

    def membership(self) -> object:
        return self

    def commit_now(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        answers: list[KafkaFailure | None] = []
        self._send(positions, answers.append)
        self._clock.wait(math.inf, until=lambda: bool(answers))
        return answers[0]

    def close(self) -> None:
        if self.closed:
            return
        if self._positions and self._group.has(self):
            self._tell("revoked", sorted(self._positions))
        self.closed = True
        self._positions.clear()
        self._group.leave(self)
        self._check()

    # -- for the group

    @property
    def overdue(self) -> bool:
        """Whether the coordinator should take this member for dead."""
        return self._clock() - self._polled_at > self._max_poll_interval

    # -- inside a poll

    def _something_to_do(self) -> bool:
        in_group = self._group.has(self)
        rebalance = in_group and bool(self._group.to_revoke(self) or self._group.to_assign(self))
        return bool(self._answers) or (not self._broker.away and (rebalance or not in_group)) or bool(self._fetch(1))

    def _serve(self) -> None:
        """Answers to commits, then the rebalance."""
        answers, self._answers = self._answers, []
        for positions, failure in answers:
            self._call("committed", positions, failure)
        if not self._broker.away:
            self._rebalance()

    def _rebalance(self) -> None:
        if not self._group.has(self):
            if self._positions:
                self._tell("lost", sorted(self._positions))
                self._positions.clear()
            self._group.join(self)
        if revoked := self._group.to_revoke(self):
            self._tell("revoked", revoked)
            # The callback may have lasted until we were fenced: then a later poll tells of the loss of the rest.
            self._group.expire()
            for partition in revoked:
                self._positions.pop(partition, None)
            self._group.release(self, revoked)
        if self._group.has(self) and (assigned := self._group.to_assign(self)):
            self._group.assign(self, assigned)
            positions = {partition: self._group.committed.get(partition) for partition in assigned}
            begin = self._call("assigned", positions) or {}
            for partition, position in positions.items():
                self._positions[partition] = begin.get(partition, position.offset if position else 0)
                self._ended.pop(partition, None)
            self.paused -= set(assigned)

    def _fetch(self, limit: int) -> list[Record]:
        """What is there, from as few partitions as possible, as the real client's queue gives it. Moves nothing."""
        records: list[Record] = []
        if self._broker.away:
            return records
        for partition, position in self._positions.items():
            if partition in self.paused or self._flows_at.get(partition, 0) > self._clock():
                continue
            log = self._broker.topics[partition.topic].logs[partition]
            there = (record for record in log if record.offset >= position)
            records += itertools.islice(there, limit - len(records))
        return records

    def _take(self, records: list[Record]) -> None:
        for record in records:
            self._positions[record.partition] = record.offset + 1
        for partition in dict.fromkeys(record.partition for record in records):
            # To the end of the queue: a deep partition must not hide the others for ever.
            self._positions[partition] = self._positions.pop(partition)

    def _ends(self) -> list[End]:
        """The ends that were reached just now."""
        reached = []
        for partition, position in self._positions.items():
            topic = self._broker.topics[partition.topic]
            end, log = topic.ends[partition], topic.logs[partition]
            caught_up = not log or log[-1].offset < position
            if caught_up and partition not in self.paused and self._ended.get(partition) != end:
                self._ended[partition] = end
                reached.append(End(partition, end))
        return [] if self._broker.away else reached

    def _send(self, offsets: Mapping[Partition, Position], answer: Callable[[KafkaFailure | None], None]) -> None:
        sent = dict(offsets)
        self._broker.ask(lambda: answer(self._group.commit(self, sent)), self._broker.commit_delay)

    # -- callbacks

    def _tell(self, what: str, partitions: list[Partition]) -> None:
        self._call(what, partitions)

    def _call(self, what: str, *arguments: object) -> Any:
        try:
            return getattr(self._listener, what)(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised when the call is over
            self._kept = self._kept or error
            return None

    def _check(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            raise kept
