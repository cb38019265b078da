"""After a crash, a process's partitions do not wait for the end of its session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.replica import kill
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(150)]

RECOVERED = 12.0  # seconds after the replacement was started, on a busy machine too; the session is 45 s


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_partitions_of_a_killed_process_do_not_wait_for_its_session(site: Callable[..., Site], protocol: str) -> None:
    """With default settings, the supervisor leaves the group on behalf of the dead process."""
    one = site(partitions=4, WORKER_PROCESSES="2", KAFKA_GROUP_PROTOCOL=protocol)
    replica = one.start().wait_ready()
    one.submit(task(n, "go", partition=n % 4) for n in range(8))
    one.wait_answered()
    kill(replica.pids()[:1])
    until(lambda: len(replica.events("process.started")) == 3, one.tails)
    started = time.monotonic()
    one.submit(task(n, "go", partition=n % 4) for n in range(8, 16))
    one.wait_answered()
    waited = time.monotonic() - started
    print(f"{protocol}: answered {waited:.1f} s after the replacement was started")  # noqa: T201 - measured
    assert waited < RECOVERED, one.tails()
    assert not replica.events("membership.leave_failed"), one.tails()
    one.finish(twice=one.sent)
