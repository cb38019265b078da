"""Loads the handler in a short-lived child process of the supervisor, to check it before Kafka is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from worker import logs
from worker.errors import ExitCode, HandlerError
from worker.handlers.loader import load
from worker.process.status_block import StatusBlock
from worker.streams import end_process

if TYPE_CHECKING:
    from collections.abc import Mapping


def answer(reference: str, kwargs: Mapping[str, Any], buffer: Any, log_level: str, log_format: str) -> NoReturn:
    """Publish ``loaded`` or ``failure`` in the status block and end the process with the matching exit code."""
    logs.configure(log_level, log_format, process="handler-check")
    status_block, code = StatusBlock(buffer), ExitCode.DRAINED
    try:
        load(reference, dict(kwargs))
        status_block.publish({"loaded": True})
    except HandlerError as error:
        code = error.exit_code
        status_block.publish({"failure": {"code": int(code), "message": str(error)}})
    end_process(code)  # threads of the import must not keep it
