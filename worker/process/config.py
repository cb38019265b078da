"""The configuration of a worker process. It has plain values only, so that the child needs no settings library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KILL_WAIT = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Everything a worker process needs, rendered by the supervisor from the settings. Durations are in seconds."""

    name: str  # its name in answers: ``<replica>-<slot>``
    slot: int
    group: str
    request_topics: tuple[str, ...]
    ack_topic: str
    dead_letter_topic: str
    # By group protocol (``consumer``, ``classic``) in order of preference; one entry when the protocol is fixed.
    consumer_properties: dict[str, dict[str, Any]] = field(repr=False)  # for librdkafka; these four hold secrets
    revoke_hold: dict[str, float]
    producer_properties: dict[str, Any] = field(repr=False)
    checker_properties: dict[str, Any] = field(repr=False)  # of the client that determines how a transaction ended
    handler: str
    handler_kwargs: dict[str, Any] = field(repr=False)
    guarantee: str
    ordering: str
    max_attempts: int
    retry_first: float
    retry_greatest: float
    max_answer_bytes: int  # the largest record that the ack topic accepts
    max_dead_letter_bytes: int
    log_level: str
    log_format: str  # console | json, ``auto`` already resolved
    message_format: str = "protobuf"  # or json
    echo_headers: tuple[str, ...] = ()  # request headers that come back on answers
    batch_size: int = 1
    batch_wait: float = 0.0
    batch_per_partition: bool = False
    peek: int = 0
    isolation: str = "thread"
    task_timeout: float = 0.0  # 0: no limit, as below
    cancel_grace: float = 5.0
    task_memory: int = 0  # bytes
    child_max_tasks: int = 0
    child_max_memory: int = 0  # bytes
    extra_slots: int = 0
    state_topic: str = ""  # empty: off
    state_partitions: int = 0  # of that topic
    state_address: str = ""  # the abstract Unix socket of the replica's reader of that topic
    state_properties: dict[str, Any] = field(default_factory=dict, repr=False)  # of the producer that writes to it
    long_after: float = 60.0
    offset_store: str = ""
    commit_every: int = 1
    commit_interval: float = 5.0
    commit_mode: str = "async"

    @property
    def cancel_wait(self) -> float:
        """Return how long to wait for a cancelled task: its grace period, plus the time until a killed one is gone."""
        return self.cancel_grace + (KILL_WAIT if self.isolation == "process" else 0.0)
