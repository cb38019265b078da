"""Sets up logging in every process: JSON or console text, on stderr."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, Processor

_STDERR = 2
_CLIENT_ARGUMENTS = 3  # of "%s [%s] %s", as the Kafka client logs
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


REPEAT_SECONDS = 60.0  # between two lines about the same problem
_REPEATED = frozenset({"client.error", "client.log", "store.unavailable"})  # at every attempt
_MOST_REMEMBERED = 1_000


def resolve(fmt: str) -> str:
    """Return ``console`` or ``json``. ``auto`` means console on a terminal and JSON otherwise."""
    if fmt != "auto":
        return fmt
    return "console" if sys.stderr.isatty() else "json"


def configure(level: str, fmt: str, process: str = "supervisor") -> None:
    """Set up structlog and the standard library's logging. Every line contains ``process``."""
    number = logging.getLevelNamesMapping()[level.upper()]

    def arrange(logger: _Output, _method: str, event: EventDict) -> EventDict:
        """Put the fields that every line has first."""
        head = {key: event.pop(key) for key in ("timestamp", "level", "event")}
        origin = {"process": process, "logger": logger.name} if logger.name else {"process": process}
        return {**head, **origin, **event}

    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            Repeats(time.monotonic),
            arrange,
            *_renderers(resolve(fmt)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_Output,
        cache_logger_on_first_use=True,
    )
    logging.captureWarnings(capture=True)
    logging.basicConfig(level=number, handlers=[_Bridge()], force=True)


def print_error(message: str) -> None:
    """Print an error as one line for the user."""
    echo(message)


def echo(message: str) -> None:
    """Print a message as one line on stderr, whatever the log level and format."""
    line = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    _Output().msg(f"worker: {line}")


def _renderers(fmt: str) -> list[Processor]:
    if fmt == "console":
        # The default way to show an exception needs rich.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]


class Repeats:
    """A processor that lets lines about the same problem through once a minute. Thread-safe.

    The next line that is let through has the number of those left out in ``repeated``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}  # by line: when, and how often since

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """See ``structlog.typing.Processor``."""
        if event.get("event") not in _REPEATED:
            return event
        line = tuple(event.get(name) for name in ("event", "code", "reason", "facility", "message"))
        now = self._clock()
        said_at, repeated = self._said.get(line, (float("-inf"), 0))
        if now - said_at < REPEAT_SECONDS:
            self._said[line] = said_at, repeated + 1
            raise structlog.DropEvent
        if len(self._said) >= _MOST_REMEMBERED:
            self._said.clear()
        self._said[line] = now, 0
        return {**event, "repeated": repeated} if repeated else event


class _Output:
    """Writes a line with one system call, so that lines of several processes do not mix."""

    def __init__(self, *name: str) -> None:
        self.name = name[0] if name else ""

    def msg(self, line: str) -> None:
        # If the disk is full or the reader is gone, only the line is lost, never the work.
        with contextlib.suppress(OSError):
            os.write(_STDERR, line.encode(errors="backslashreplace") + b"\n")

    debug = info = warning = error = critical = exception = msg


class _Bridge(logging.Handler):
    """Passes log records of libraries, and of handlers that use ``logging``, to the same output."""

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
