"""Preflight: a child process that checks the broker first. The supervisor itself never has a Kafka client."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from worker import logs
from worker.errors import ExitCode, WorkerError
from worker.kafka import preflight
from worker.process.status_block import StatusBlock

if TYPE_CHECKING:
    from worker.kafka.facts import Target


def answer(target: Target, buffer: Any, log_level: str, log_format: str) -> NoReturn:
    """Publish ``facts`` or ``failure`` in the status block and end the process with the matching exit code."""
    logs.configure(log_level, log_format, process="preflight")
    status_block, code = StatusBlock(buffer), ExitCode.DRAINED
    try:
        status_block.publish({"facts": dataclasses.asdict(preflight.run(target, _waiting))})
    except WorkerError as error:
        status_block.publish({"failure": {"code": int(error.exit_code), "message": str(error)}})
        code = error.exit_code
    os._exit(code)  # freeing a client that cannot reach its broker takes long


def _waiting(reason: str) -> None:
    structlog.get_logger("preflight").warning("preflight.waiting", reason=reason)
