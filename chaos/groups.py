"""What the suite asks the brokers about its group."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition, admin

from chaos.load import PARTITIONS
from worker.kafka.clients import UNTIMED

SECONDS = 30.0
_api: Any = admin  # not all it has is in the types


def administrator(bootstrap: str) -> Any:
    """A client of one's own, to use as a context: after outages one was seen that heard nothing of brokers that were
    there, for as long as it lived.
    """
    return _api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The group's committed offset of each partition, where it has come past the beginning."""
    asked = [ConsumerGroupTopicPartitions(group)]
    with administrator(bootstrap) as client:
        ((_, future),) = client.list_consumer_group_offsets(asked, request_timeout=UNTIMED).items()
        found = future.result(SECONDS).topic_partitions
    return {at.partition: at.offset for at in found if at.topic == topic and at.offset > 0}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Where each partition that holds anything ends."""
    latest = dict.fromkeys([TopicPartition(topic, n) for n in range(PARTITIONS)], _api.OffsetSpec.latest())
    with administrator(bootstrap) as client:
        found = {at.partition: future.result(SECONDS).offset for at, future in client.list_offsets(latest).items()}
    return {number: offset for number, offset in found.items() if offset}


def owners(bootstrap: str, group: str) -> str:
    """Which member has which partitions, and which it is to have if those are others."""
    with administrator(bootstrap) as client:
        ((_, future),) = client.describe_consumer_groups([group], request_timeout=UNTIMED).items()
        members = future.result(SECONDS).members
    told = []
    for member in members:
        has, wants = _numbers(member.assignment), _numbers(member.target_assignment)
        told.append(f"{member.client_id} has {has}{'' if wants in (None, has) else f', and is to have {wants}'}")
    return "; ".join(sorted(told)) or "no member"


def _numbers(assignment: Any) -> list[int] | None:
    return None if assignment is None else sorted(at.partition for at in assignment.topic_partitions)


def configure(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    """Set the broker's configuration of a group."""
    put = _api.AlterConfigOpType.SET
    entries = [_api.ConfigEntry(name, value, incremental_operation=put) for name, value in settings.items()]
    resource = _api.ConfigResource(_api.ResourceType.GROUP, group, incremental_configs=entries)
    with administrator(bootstrap) as client:
        for future in client.incremental_alter_configs([resource]).values():
            future.result(SECONDS)
