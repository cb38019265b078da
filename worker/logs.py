"""Where log lines go and what they look like: JSON or a console's text, on stderr. Set up once in every process."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

_STDERR = 2
_CLIENT_ARGUMENTS = 3  # of "%s [%s] %s", as the Kafka client logs
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def resolve(fmt: str) -> str:
    """``console`` or ``json``: what ``auto`` comes to is console on a terminal and JSON otherwise."""
    if fmt != "auto":
        return fmt
    return "console" if sys.stderr.isatty() else "json"


def configure(level: str, fmt: str, process: str = "supervisor") -> None:
    """Set up structlog, and the standard library's logging beneath it. ``process`` stands in every line."""
    number = logging.getLevelNamesMapping()[level.upper()]

    def arrange(logger: _Output, _method: str, event: EventDict) -> EventDict:
        """What is in every line comes first."""
        head = {key: event.pop(key) for key in ("timestamp", "level", "event")}
        origin = {"process": process, "logger": logger.name} if logger.name else {"process": process}
        return {**head, **origin, **event}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            arrange,
            *_renderers(resolve(fmt)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_Output,
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(capture=True)
    logging.basicConfig(level=number, handlers=[_Bridge()], force=True)


def complain(message: str) -> None:
    """Tell the person who runs the worker what to do: one line on stderr, whatever the log level and format."""
    line = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    _Output().msg(f"worker: {line}")


def _renderers(fmt: str) -> list[Processor]:
    if fmt == "console":
        # The default way to show an exception needs rich.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


class _Output:
    """Writes a line with one system call, so that those of several processes do not mix."""

    def __init__(self, *name: str) -> None:
        self.name = name[0] if name else ""

    def msg(self, line: str) -> None:
        # A full disk or a reader that has gone away loses the line, never the work.
        with contextlib.suppress(OSError):
            os.write(_STDERR, line.encode(errors="backslashreplace") + b"\n")

    debug = info = warning = error = critical = exception = msg


class _Bridge(logging.Handler):
    """Brings the log records of libraries, and of handlers that use ``logging``, into the same lines."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((level for level in _LEVELS if record.levelno >= level), logging.DEBUG)
        structlog.get_logger(record.name).log(level, **_fields(record))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    if record.name == "librdkafka" and isinstance(record.args, tuple) and len(record.args) == _CLIENT_ARGUMENTS:
        facility, _client, message = record.args
        return {"event": "client.log", "facility": facility, "message": message}
    try:
        event = record.getMessage()
    except Exception:  # noqa: BLE001 - arguments that do not fit their text
        event = str(record.msg)
    return {"event": event, "exc_info": record.exc_info} if record.exc_info else {"event": event}
