"""The child process that asks the broker before any worker process starts: the supervisor never holds a client."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from worker import logs
from worker.errors import ExitCode, WorkerError
from worker.kafka import preflight
from worker.process.cell import Cell

if TYPE_CHECKING:
    from worker.kafka.facts import Target


def answer(target: Target, buffer: Any, log_level: str, log_format: str) -> NoReturn:
    """Put what the broker said into the cell, as ``facts`` or ``failure``, and end with the exit code for it."""
    logs.configure(log_level, log_format, process="preflight")
    cell, code = Cell(buffer), ExitCode.DRAINED
    try:
        cell.publish({"facts": dataclasses.asdict(preflight.run(target, _waiting))})
    except WorkerError as error:
        cell.publish({"failure": {"code": int(error.exit_code), "message": str(error)}})
        code = error.exit_code
    os._exit(code)  # a client that cannot reach its broker would take its time to be freed


def _waiting(reason: str) -> None:
    structlog.get_logger("preflight").warning("preflight.waiting", reason=reason)
