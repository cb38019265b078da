"""The exit codes of the commands. The contract fixes them, because schedulers depend on them."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """The exit codes of ``pipeline``."""

    DONE = 0  # or proved
    FAILED = 1  # the job cannot continue, or is disproved
    UNDECIDED = 2
    AUDIT_FAILED = 3
    UNREACHABLE = 4  # Kafka, or a topic
    USAGE = 64
    INTERRUPTED = 130
