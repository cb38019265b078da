"""The configuration of a template process and its children: plain values that JSON can represent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class ChildConfig:
    """Everything a child needs to run tasks."""

    handler: str  # package.module:function
    kwargs: dict[str, Any] = field(repr=False)
    max_attempts: int
    topics: list[str]  # request topics; a task refers to its topic by the index in this list
    log_level: str
    log_format: str
    name: str  # in every log line
    message_format: str = "protobuf"  # of requests


class Channel(NamedTuple):
    """The descriptors that connect a child to its parent, in the order in which they are passed."""

    tasks: int  # a stream socket for incoming chunks
    reports: int  # a pipe for outgoing reports
    wakeup: int  # an eventfd that wakes the parent
    cancel: int  # an eventfd that wakes a handler waiting for ``cancelled``
    page: int  # see ``worker.isolation.page``
    crash: int  # a memfd that receives the stack of a crash
