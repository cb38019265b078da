"""What the consumer does with its settings, without a broker."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from worker.errors import ClientFatalError
from worker.kafka.committed_offsets import reset_offset
from worker.kafka.consumer import ConfluentConsumer

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0}


@pytest.mark.parametrize("rule", ["earliest", "Earliest", " smallest", "BEGINNING"])
def test_a_reset_rule_may_be_written_as_librdkafka_accepts_it(rule: str) -> None:
    assert reset_offset(rule) == ck.OFFSET_BEGINNING


def test_without_a_rule_that_helps_the_client_fails() -> None:
    with pytest.raises(ClientFatalError, match=r"auto\.offset\.reset=error"):
        reset_offset("error")


def test_a_request_for_a_check_ends_with_the_protocol() -> None:
    """Under ``classic`` the coordinator shows no target that the partitions could be compared with."""
    consumer = ConfluentConsumer({"consumer": NOBODY, "classic": NOBODY})
    consumer._membership_check.request()
    consumer._fall_back()
    assert (consumer.protocol, consumer._membership_check.pending) == ("classic", False)
    consumer.close()
