"""Leaving the group in the name of a dead member, without a broker: members that stay, failures and the time limit."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import structlog.testing

from worker.kafka.leave import leave_group

REACH = {"bootstrap.servers": "127.0.0.1:1"}
HANGING = """
import time
from worker.kafka import leave
leave.LIMIT, leave.MARGIN = 0.0, 0.2
leave.leave_group = lambda *_: time.sleep(60)
leave.run({}, "group", "consumer", "member", None, "INFO", "json")
"""


@pytest.mark.parametrize(
    ("protocol", "member", "instance"), [("consumer", "", None), ("classic", "", None), ("classic", "member", "name")]
)
def test_nothing_is_sent_without_a_member_id_or_for_a_static_member_of_classic(
    protocol: str, member: str, instance: str | None
) -> None:
    with structlog.testing.capture_logs() as events:
        leave_group(REACH, "group", protocol, member, instance)

    assert events == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/none"}, "No such file"),
    ],
)
def test_a_failure_to_leave_is_logged_and_raises_no_exception(given: dict[str, str], reason: str) -> None:
    with structlog.testing.capture_logs() as events:
        leave_group(REACH | given, "group", "consumer", "member", None)

    (event,) = events
    assert (event["event"], event["member"]) == ("membership.leave_failed", "member")
    assert reason in event["reason"]


def test_the_leaving_process_ends_even_if_its_client_hangs() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HANGING], check=False)

    assert done.returncode == 1
    assert time.monotonic() - began < 50
