"""The effects of the consumer's settings, without a broker."""

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


def test_the_reset_rule_error_is_fatal_to_the_client() -> None:
    with pytest.raises(ClientFatalError, match=r"auto\.offset\.reset=error"):
        reset_offset("error")


def test_the_fallback_to_classic_drops_a_requested_membership_check() -> None:
    """Under ``classic`` the coordinator shows no target with which to compare the partitions."""
    consumer = ConfluentConsumer({"consumer": NOBODY, "classic": NOBODY})
    consumer._membership_check.request()
    consumer._fall_back()
    assert (consumer.protocol, consumer._membership_check.pending) == ("classic", False)
    consumer.close()
