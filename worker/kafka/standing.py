"""Whether the group and its member agree on what the member has.

Under the consumer protocol (KIP-848) the coordinator tells a member once what it shall have: in the answer to a
heartbeat. If that answer does not come in time, librdkafka 2.16 asks again, but not in full as Java's client does
after any error, so that it is not told again. A partition it was to give up is then kept until the poll interval is
over, which is a day here; one it was given is consumed by nobody. And a client that does not find back to its
coordinator sends no heartbeats at all, and never hears that it was given up. See docs/decisions/0074.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException, admin

from worker.core.model import Partition
from worker.kafka.clients import UNTIMED
from worker.kafka.names import CONSUMER_ONLY

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

LOOK_SECONDS = 5.0  # from a doubt to the first look, and between two
LOOKS = 2  # that must differ: one may fall between a heartbeat and what follows from it
ANSWER_SECONDS = 10.0
_SIGNS = (("REQTMOUT", "ConsumerGroupHeartbeatRequest"), ("FAIL", "GroupCoordinator"))  # facility, part of the text

log = structlog.get_logger("kafka")


class View(NamedTuple):
    """What the coordinator thinks a member has, and what it shall have."""

    has: frozenset[Partition]
    shall: frozenset[Partition]


_NO_MEMBER = View(frozenset(), frozenset())


class Standing:
    """Looks at the group, in a thread of its own, after there was no answer from its coordinator. Poll thread.

    ``stale``: the client has missed something for good. ``expelled``: and that is that it is in the group no more.
    ``joined``: it has been; to be set by the caller, too, since a member that has not joined yet misses nothing.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.stale = False
        self.expelled = False
        self.joined = False
        self.doubtful = False
        self._properties = {name: value for name, value in properties.items() if name not in CONSUMER_ONLY}
        self._group = properties["group.id"]
        self._due = 0.0
        self._differed = 0
        self._asking: threading.Thread | None = None
        self._view: View | None = None

    def doubt(self) -> None:
        """A heartbeat was not answered in time, or the connection to the coordinator has failed."""
        if not self.doubtful:
            self.doubtful, self._due, self._differed = True, time.monotonic() + LOOK_SECONDS, 0

    def look(self, member: str, ours: AbstractSet[Partition]) -> None:
        """Go on with the looking, if there is a doubt. Does not wait. ``ours`` is what the member has."""
        if not self.doubtful or (self._asking is not None and self._asking.is_alive()):
            return
        if self._asking is not None:
            self._asking = None
            self._due = time.monotonic() + LOOK_SECONDS
            if self._view is not None:
                self._judge(self._view, ours)
        elif time.monotonic() >= self._due:
            self._view = None
            self._asking = threading.Thread(target=self._ask, args=(member,), name="standing", daemon=True)
            self._asking.start()

    def _judge(self, view: View, ours: AbstractSet[Partition]) -> None:
        if view is not _NO_MEMBER and view.has == ours and ours <= view.shall:
            self.doubtful = False
            return
        if not self.joined:
            return
        self._differed += 1
        if self._differed >= LOOKS:
            self.doubtful, self.stale, self.expelled = False, True, view is _NO_MEMBER
            log.warning("membership.stale", ours=_names(ours), has=_names(view.has), shall=_names(view.shall))

    def _ask(self, member: str) -> None:
        """No view, and so another look, while the broker does not answer."""
        try:
            described = self._describe()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                self.doubtful = False  # nobody will ever tell us
            log.warning("client.error", code=error.args[0].name(), reason=error.args[0].str())
            return
        except TimeoutError:
            return
        found = [one for one in described.members if one.member_id == member]
        self._view = _view(found[0]) if found else _NO_MEMBER
        self.joined = self.joined or bool(found)

    def _describe(self) -> Any:
        # Closed here and now: a failure that is still known somewhere keeps the client, and then it is the collector
        # that frees it, on any thread, even one of the client's own, which ends the process.
        with admin.AdminClient({**self._properties, "log_level": 2}) as client:
            asked = client.describe_consumer_groups([self._group], request_timeout=UNTIMED)
            return asked[self._group].result(ANSWER_SECONDS)


class Eavesdropper:
    """A logger for a client, which says when the coordinator does not answer: there is no other way to learn of it."""

    def __init__(self, logger: logging.Logger, heard: Callable[[], None]) -> None:
        self._logger = logger
        self._heard = heard

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """As ``logging.Logger.log``; the client calls it inside ``poll``."""
        texts = [str(argument) for argument in arguments]
        if any(facility in texts and any(sign in text for text in texts) for facility, sign in _SIGNS):
            self._heard()
        self._logger.log(level, text, *arguments)


def _view(member: Any) -> View:
    return View(_partitions(member.assignment), _partitions(member.target_assignment))


def _partitions(assignment: Any) -> frozenset[Partition]:
    places = assignment.topic_partitions if assignment is not None else []
    return frozenset(Partition(place.topic, place.partition) for place in places)


def _names(partitions: AbstractSet[Partition]) -> list[str]:
    return [str(partition) for partition in sorted(partitions)]
