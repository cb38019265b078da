"""What a worker process is told at its start: plain values, so that the child needs no settings library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Everything a worker process needs, rendered by the supervisor from the settings. Durations are seconds."""

    name: str  # who answers: ``<replica>-<slot>``
    slot: int
    group: str
    request_topics: tuple[str, ...]
    ack_topic: str
    dead_letter_topic: str
    # By group protocol (``consumer``, ``classic``) in order of preference; one entry when the protocol is fixed.
    consumer_properties: dict[str, dict[str, Any]] = field(repr=False)  # for librdkafka; these four hold secrets
    revoke_hold: dict[str, float]
    producer_properties: dict[str, Any] = field(repr=False)
    checker_properties: dict[str, Any] = field(repr=False)  # of who asks how a transaction ended
    handler: str
    handler_kwargs: dict[str, Any] = field(repr=False)
    guarantee: str
    ordering: str
    max_attempts: int
    retry_first: float
    retry_greatest: float
    drain_timeout: float  # 0: no limit
    max_answer_bytes: int  # the greatest record the ack topic takes
    max_dead_letter_bytes: int
    log_level: str
    log_format: str  # console | json, ``auto`` already resolved
    batch_size: int = 1
    batch_wait: float = 0.0
    batch_per_partition: bool = False
    peek: int = 0
    offset_store: str = ""
    commit_every: int = 1
    commit_interval: float = 5.0
    commit_mode: str = "async"
