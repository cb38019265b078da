"""The client properties that a worker process gets."""

from __future__ import annotations

import pytest

from tests.unit.environment import NEEDED
from worker.kafka.facts import Facts
from worker.settings import Settings
from worker.supervisor import render


def test_a_process_gets_every_property() -> None:
    """Both protocols are there in order of preference, each with its hold. Secrets are not in the repr."""
    variables = {
        "WORKER_RETRY_BACKOFF": "2s..1m",
        "KAFKA_CONFIG_SASL_PASSWORD": "tr0ub4dor",
        "WORKER_REVOKE_HOLD": "1h",
    }
    config = render.process_config(Settings.load(NEEDED | variables), "me", 3, Facts(8, 1000, 2000))

    assert list(config.consumer_properties) == ["consumer", "classic"]
    assert config.revoke_hold == {"consumer": 3600.0, "classic": 60.0}
    assert config.name == "me-3"
    assert config.producer_properties["client.id"] == config.name
    assert (config.retry_first, config.retry_greatest) == (2.0, 60.0)
    assert (config.max_answer_bytes, config.max_dead_letter_bytes) == (1000, 2000)
    assert config.log_format in {"console", "json"}
    assert config.producer_properties["sasl.password"] == "tr0ub4dor"
    assert "tr0ub4dor" not in repr(config)


@pytest.mark.parametrize(
    ("given", "static"),
    [
        ({}, []),
        ({"WORKER_REPLICA": "a"}, ["classic"]),
        ({"WORKER_REPLICA": "a", "KAFKA_STATIC_MEMBERSHIP": "on"}, ["consumer", "classic"]),
        ({"WORKER_REPLICA": "a", "KAFKA_STATE_TOPIC": "states"}, []),
        ({"WORKER_REPLICA": "a", "KAFKA_STATE_TOPIC": "states", "KAFKA_STATIC_MEMBERSHIP": "on"}, ["consumer"]),
    ],
)
def test_the_settings_decide_under_which_protocols_a_member_is_static(given: dict[str, str], static: list[str]) -> None:
    """A classic group shows the client id of a static member's first process, so no holder may be static there."""
    config = render.process_config(Settings.load(NEEDED | given), "a", 0, Facts(8, 1000, 2000))

    rendered = config.consumer_properties
    assert [protocol for protocol in rendered if "group.instance.id" in rendered[protocol]] == static


def test_the_poll_interval_limits_the_hold_of_a_process() -> None:
    """The hold is shorter than configured if the poll interval is too short for it."""
    settings = Settings.load(NEEDED | {"KAFKA_CONFIG_MAX_POLL_INTERVAL_MS": "50000"})

    assert render.process_config(settings, "me", 0, Facts(8, 1, 1)).revoke_hold == {"consumer": 45.0, "classic": 45.0}


def test_a_configured_protocol_is_the_only_one() -> None:
    """There is no fallback if the user has chosen the protocol."""
    settings = Settings.load(NEEDED | {"KAFKA_GROUP_PROTOCOL": "classic"})
    config = render.process_config(settings, "me", 0, Facts(8, 1, 1))

    assert list(config.consumer_properties) == ["classic"]
    assert config.revoke_hold == {"classic": 60.0}


@pytest.mark.parametrize(("text", "heartbeat", "seconds"), [("auto", 5.0, 60.0), ("auto", 0.5, 10.0), ("3s", 5.0, 3.0)])
def test_when_a_task_is_a_long_one(text: str, heartbeat: float, seconds: float) -> None:
    """A task counts as long after 12 heartbeats of the group, but at least 10 seconds, or as configured."""
    settings = Settings.load(NEEDED | {"WORKER_LONG_AFTER": text, "KAFKA_STATE_TOPIC": "states"})
    config = render.process_config(settings, "me", 0, Facts(8, 1, 1, heartbeat=heartbeat, state_partitions=6))
    assert (config.long_after, config.state_topic, config.state_partitions) == (seconds, "states", 6)
