"""Checks that the group and the member agree on the member's partitions, under the consumer protocol (KIP-848).

The coordinator sends a new target assignment to a member only once, in the reply to a heartbeat. If that reply is late,
librdkafka 2.16 sends the heartbeat again, but not in full, as Java's client does after any error. So the coordinator
does not repeat the assignment. A partition to be revoked then stays until the poll interval is over, which is a day
here, and no member consumes a partition that was added. A client that no longer finds its coordinator sends no
heartbeats at all and never learns that the group has removed it. See docs/decisions/0074.
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

CHECK_SECONDS = 5.0  # from the request to the first check, and from a difference to the next check
LONGEST_SECONDS = 60.0  # between two checks that find agreement; a describe costs the coordinator more in large groups
CHECKS = 2  # that must find a difference: one may fall between a heartbeat and its effect
ANSWER_SECONDS = 10.0
_SIGNS = (("REQTMOUT", "GroupCoordinator"), ("FAIL", "GroupCoordinator"))  # facility, part of the text

log = structlog.get_logger("kafka")


class View(NamedTuple):
    """The coordinator's view of a member: its partitions and its target assignment."""

    current: frozenset[Partition]
    target: frozenset[Partition]


_NO_MEMBER = View(frozenset(), frozenset())


class MembershipCheck:
    """Asks the coordinator, in a thread, when its replies have failed to arrive. Called by the poll thread.

    ``stale`` means that the client has missed a change permanently. ``fenced`` means that the group has removed the
    member. ``joined`` means that the member has been in the group; the caller sets it too. A member that has not joined
    yet misses nothing. ``pending`` means that the client may have missed a change.

    Agreement alone does not prove that it has missed none. The coordinator may wait for a revocation that the client
    never heard of, while the latest target contains those partitions again. It then does not announce the next change
    either. So checks go on, at growing intervals, until a change has been reported to the client.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.stale = False
        self.fenced = False
        self.joined = False
        self.pending = False
        self._properties = {name: value for name, value in properties.items() if name not in CONSUMER_ONLY}
        self._group = properties["group.id"]
        self._due = 0.0
        self._pause = CHECK_SECONDS
        self._reported = False
        self._differences = 0
        self._thread: threading.Thread | None = None
        self._view: View | None = None

    def request(self) -> None:
        """Request a check, because a heartbeat got no reply in time or the connection to the coordinator failed."""
        due = time.monotonic() + CHECK_SECONDS
        self._due = min(self._due, due) if self.pending else due
        self._pause, self._reported = CHECK_SECONDS, False
        if not self.pending:
            self.pending, self._differences = True, 0

    def change_reported(self) -> None:
        """Record that the coordinator has reported a change to the client."""
        self._reported = True

    def check(self, member: str, ours: AbstractSet[Partition]) -> None:
        """Continue a pending check, without waiting. ``ours`` are the member's partitions."""
        if not self.pending or (self._thread is not None and self._thread.is_alive()):
            return
        if self._thread is not None:
            self._thread = None
            if self._view is not None:
                self._compare(self._view, ours)
            self._due = time.monotonic() + self._pause
        elif time.monotonic() >= self._due:
            self._view = None
            self._thread = threading.Thread(target=self._fetch, args=(member,), name="membership-check", daemon=True)
            self._thread.start()

    def _compare(self, view: View, ours: AbstractSet[Partition]) -> None:
        if view is not _NO_MEMBER and view.current == ours and ours <= view.target:
            self.pending, self._differences = not self._reported, 0
            self._pause = min(2 * self._pause, LONGEST_SECONDS)
            return
        self._pause = CHECK_SECONDS
        if not self.joined:
            return
        self._differences += 1
        if self._differences >= CHECKS:
            self.pending, self.stale, self.fenced = False, True, view is _NO_MEMBER
            report_stale(ours, view.current, view.target)

    def _fetch(self, member: str) -> None:
        """Fetch the view. If there is no reply, another check follows."""
        try:
            described = self._describe()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                self.pending = False  # no check will ever get a reply
            log.warning("client.error", code=error.args[0].name(), reason=error.args[0].str())
            return
        except TimeoutError:
            return
        found = [one for one in described.members if one.member_id == member]
        self._view = _view(found[0]) if found else _NO_MEMBER
        self.joined = self.joined or bool(found)

    def _describe(self) -> Any:
        # Close the client here: an exception that is still referenced keeps it alive. The garbage collector would then
        # free it on any thread, even one of the client's own, which ends the process.
        with admin.AdminClient({**self._properties, "log_level": 2}) as client:
            answers = client.describe_consumer_groups([self._group], request_timeout=UNTIMED)
            return answers[self._group].result(ANSWER_SECONDS)


class LogWatcher:
    """A client's logger that detects a coordinator that does not reply. There is no other sign of that.

    tests/unit/test_client_log.py checks these texts against the installed librdkafka.
    """

    def __init__(self, logger: logging.Logger, report: Callable[[], None]) -> None:
        self._logger = logger
        self._report = report

    def log(self, level: int, text: str, *arguments: Any) -> None:
        """Log as ``logging.Logger.log``. The client calls it inside ``poll``."""
        texts = [str(argument) for argument in arguments]
        if any(facility in texts and any(sign in text for text in texts) for facility, sign in _SIGNS):
            self._report()
        self._logger.log(level, text, *arguments)


def report_stale(ours: AbstractSet[Partition], current: AbstractSet[Partition], target: AbstractSet[Partition]) -> None:
    """Log the client's partitions, and the current and target partitions in the coordinator's view."""
    log.warning("membership.stale", client=_names(ours), current=_names(current), target=_names(target))


def _view(member: Any) -> View:
    return View(_partitions(member.assignment), _partitions(member.target_assignment))


def _partitions(assignment: Any) -> frozenset[Partition]:
    places = assignment.topic_partitions if assignment is not None else []
    return frozenset(Partition(place.topic, place.partition) for place in places)


def _names(partitions: AbstractSet[Partition]) -> list[str]:
    return [str(partition) for partition in sorted(partitions)]
