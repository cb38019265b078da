"""The state of the suite's consumer group, read from the brokers."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition, admin

from chaos.requests import MOST_PARTITIONS

SECONDS = 30.0
# The client's own time-out of these requests can end the process (librdkafka 2.16), so it never fires.
UNTIMED = 3600.0  # seconds
_api: Any = admin  # its types are incomplete


def administrator(bootstrap: str) -> Any:
    """Return a new admin client to use as a context manager. After outages, old clients stayed disconnected."""
    return _api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return the group's committed offset of each partition that has one above 0."""
    wanted = [ConsumerGroupTopicPartitions(group)]
    with administrator(bootstrap) as client:
        ((_, future),) = client.list_consumer_group_offsets(wanted, request_timeout=UNTIMED).items()
        found = future.result(SECONDS).topic_partitions
    return {at.partition: at.offset for at in found if at.topic == topic and at.offset > 0}


def ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the end offset of each partition that is not empty."""
    with administrator(bootstrap) as client:
        places = [TopicPartition(topic, number) for number in _partitions(client, topic)]
        latest = dict.fromkeys(places, _api.OffsetSpec.latest())
        found = {at.partition: future.result(SECONDS).offset for at, future in client.list_offsets(latest).items()}
    return {number: offset for number, offset in found.items() if offset}


def _partitions(client: Any, topic: str) -> list[int]:
    found = client.list_topics(topic, SECONDS).topics[topic]
    if found.error is not None or not found.partitions:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def partitions(bootstrap: str, topic: str) -> list[int]:
    """Return the partitions of the topic."""
    with administrator(bootstrap) as client:
        return _partitions(client, topic)


def add_partition(bootstrap: str, topic: str) -> bool:
    """Add a partition to the topic. Return False if it has as many as it may have. Raise KafkaException."""
    with administrator(bootstrap) as client:
        wanted = len(_partitions(client, topic)) + 1
        if wanted > MOST_PARTITIONS:
            return False
        for future in client.create_partitions([_api.NewPartitions(topic, wanted)]).values():
            future.result(SECONDS)
    return True


def delete_committed(bootstrap: str, group: str, topic: str) -> None:
    """Delete the records of the topic that the group has committed, as retention would."""
    offsets = committed(bootstrap, group, topic)
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    with administrator(bootstrap) as client:
        for future in client.delete_records(wanted).values() if wanted else ():
            future.result(SECONDS)


def owners(bootstrap: str, group: str) -> str:
    """Return the partitions of each member, and its target assignment if that differs. For diagnostics."""
    with administrator(bootstrap) as client:
        ((_, future),) = client.describe_consumer_groups([group], request_timeout=UNTIMED).items()
        members = future.result(SECONDS).members
    rows = []
    for member in members:
        has, wants = _numbers(member.assignment), _numbers(member.target_assignment)
        rows.append(f"{member.client_id} has {has}{'' if wants in (None, has) else f', target {wants}'}")
    return "; ".join(sorted(rows)) or "no member"


def _numbers(assignment: Any) -> list[int] | None:
    return None if assignment is None else sorted(at.partition for at in assignment.topic_partitions)


def configure(bootstrap: str, group: str, settings: dict[str, str]) -> None:
    """Set the group's configuration on the broker."""
    put = _api.AlterConfigOpType.SET
    entries = [_api.ConfigEntry(name, value, incremental_operation=put) for name, value in settings.items()]
    resource = _api.ConfigResource(_api.ResourceType.GROUP, group, incremental_configs=entries)
    with administrator(bootstrap) as client:
        for future in client.incremental_alter_configs([resource]).values():
            future.result(SECONDS)
