"""Leaves the group on behalf of a dead process, so that its partitions move at once.

Otherwise the coordinator waits for the member's session time-out, 45 s by default. A ``LeaveGroup`` request with the
dead member's id removes it under both protocols (Kafka 4.3: peers have its partitions after 0.5 s under ``consumer``
and 1 s under ``classic``). librdkafka has no such call, so kafka-python sends it.

This is safe once the process is certainly dead, that is, reaped. A member id belongs to only one process. Requests of
that process that are still on the network are refused afterwards, because the coordinator no longer knows the member.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import kafka.errors
import structlog
from kafka.admin import KafkaAdminClient, MemberToRemove

from worker import logs
from worker.core.deadline import Deadline
from worker.kafka.kafka_python import options

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT = 20.0  # seconds until it gives up; the session time-out then removes the member
ANSWER = 5.0  # seconds for one request
PAUSE = 0.2  # seconds between two attempts
MARGIN = 2.0  # seconds that the client may exceed LIMIT before its process is ended
_REASON = "its process died"  # appears in the coordinator's log

log = structlog.get_logger("kafka")


def run(
    properties: Mapping[str, Any],
    group: str,
    protocol: str,
    member_id: str,
    instance_id: str | None,
    log_level: str,
    log_format: str,
) -> NoReturn:
    """Run the short-lived child process. It ends within LIMIT + MARGIN seconds, even without a reply."""
    logs.configure(log_level, log_format, process="leave")
    limit = threading.Timer(LIMIT + MARGIN, os._exit, (1,))
    limit.daemon = True
    limit.start()
    leave_group(properties, group, protocol, member_id, instance_id)
    os._exit(0)  # this also ends the client's threads and sockets


def leave_group(
    properties: Mapping[str, Any], group: str, protocol: str, member_id: str, instance_id: str | None
) -> None:
    """Remove a dead member from its group. Never raise: a failure is logged as ``membership.leave_failed``.

    ``properties`` are librdkafka's, of any client of this cluster. ``member_id`` is the last id of the dead process;
    without one, do nothing. Also do nothing for a static member under ``classic``: its replacement takes over the name
    at once, and leaving would move its partitions back and forth. Under ``consumer`` the broker refuses the name to a
    replacement while the dead member has it (UNRELEASED_INSTANCE_ID), so a static member does leave.
    """
    if not member_id or (protocol == "classic" and instance_id is not None):
        return
    warning = _FirstWarning()
    try:
        _leave(options(properties), group, MemberToRemove(member_id, instance_id, _REASON))
    except Exception as error:  # noqa: BLE001 - the session time-out removes the member in any case
        reasons = filter(None, (str(error) or type(error).__name__, warning.text))
        log.warning("membership.leave_failed", member=member_id, reason="; ".join(reasons))


def _leave(settings: Mapping[str, Any], group: str, member: Any) -> None:
    """Try until the coordinator replies. Raise the last failure after LIMIT seconds, a permanent one at once."""
    deadline = Deadline.after(LIMIT, time.monotonic())
    while True:
        try:
            _remove(settings, group, member, deadline.remaining(time.monotonic()))
        except kafka.errors.KafkaError as error:
            if not error.retriable or deadline.passed(time.monotonic() + PAUSE):
                raise
            time.sleep(PAUSE)
        else:
            return


def _remove(settings: Mapping[str, Any], group: str, member: Any, timeout: float) -> None:
    client = KafkaAdminClient(
        **settings,
        bootstrap_timeout_ms=int(timeout * 1000),
        request_timeout_ms=int(min(ANSWER, timeout) * 1000),
        reconnect_backoff_max_ms=1000,
    )
    try:
        (answer,) = client.remove_group_members(group, [member]).values()
    finally:
        client.close()
    if answer is not kafka.errors.NoError:
        raise answer


class _FirstWarning(logging.Handler):
    """Keeps kafka-python's first warning about a connection, because its exceptions lack the reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        logger = logging.getLogger("kafka")
        logger.handlers, logger.propagate = [self], False  # log a failure as one event, not as many lines

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a record as ``logging.Handler`` does."""
        if record.name == "kafka.net.manager":
            self.text = self.text or record.getMessage()
