"""A process whose Kafka clients have lost all brokers (docs/decisions/0075)."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

TASKS = 80
MOST_SECONDS = 20.0  # until everything is answered; the session would end only after 45 s


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once", "at-most-once"])
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_stranded_process_is_replaced(site: Callable[..., Site], guarantee: str, protocol: str) -> None:
    """Its requests do not wait for the end of its session, or for the reply to a commit."""
    one = site(
        partitions=4,
        WORKER_PROCESSES="2",
        WORKER_HANDLER="stranding:handle",
        WORKER_HANDLER_KWARGS="{}",
        WORKER_GUARANTEE=guarantee,
        KAFKA_GROUP_PROTOCOL=protocol,
    )
    file = one.folder / "pid"
    replica = one.start(STRANDED_PID_FILE=str(file)).wait_ready()
    one.submit(task(n, "", partition=n % 4) for n in range(TASKS))
    until(lambda: sum(one.counts().values()) >= TASKS // 8, one.tails)
    first, second = replica.pids()
    before = time.monotonic()
    file.write_text(str(first), encoding="utf-8")
    until(lambda: replica.events("process.ended"), one.tails)
    (ended,) = replica.events("process.ended")
    assert (ended["pid"], ended["ending"]) == (first, "drained")
    if guarantee == "at-most-once":  # no other process answers the tasks that it had started
        one.wait_committed()
    else:
        one.wait_answered()
    assert time.monotonic() - before < MOST_SECONDS
    assert second in replica.pids()
    assert {event["process"] for event in replica.events("client.stranded")} == {f"{socket.gethostname()}-0"}
    if guarantee != "at-most-once":
        one.finish(twice=one.sent if guarantee == "at-least-once" else [])
