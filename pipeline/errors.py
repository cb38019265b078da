"""The errors of a job, for the person who runs it: one clear line and an exit code."""

from __future__ import annotations

import re
import sys
from typing import Any

from worker.errors import BrokerError, SettingsError, WorkerError

__all__ = [
    "AuditFailedError",
    "BrokerError",
    "JobError",
    "SettingsError",
    "WorkerError",
    "format_error",
    "is_unreachable",
]

_CUT_OFF = (ConnectionRefusedError, ConnectionResetError)  # py4j raises these when the JVM has ended
_ABORTED = "Job aborted due to stage failure"
_LONGEST = 500  # characters of a message from Spark
# The last line of a Python trace from one of Spark's tasks: a class of this project, and its message.
_IN_TASK = re.compile(r"^(?:pipeline|worker)\.errors\.\w+: (.+)$", re.MULTILINE)
# How this project's code in a task, Kafka's Java client and Spark's connector say that no broker answers.
_UNREACHABLE = re.compile(
    r"^worker\.errors\.BrokerError: "
    r"|\borg\.apache\.kafka\.common\.errors\.(?:Timeout|Disconnect|Network|BrokerNotAvailable)Exception\b"
    r"|\bCannot fetch record for offset \d+ in \d+ milliseconds",
    re.MULTILINE,
)
_PYTHON = re.compile(r"^(\w[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+\w+: ")
_STATE = re.compile(r" SQLSTATE: \w+\s*$")


class JobError(WorkerError):
    """The job cannot continue. The message says why, and what to do."""


class AuditFailedError(Exception):
    """The audit at the end of a run failed before it reached a verdict. ``__cause__`` is the reason."""


def format_error(error: Exception) -> list[str] | None:
    """Return the lines that describe the error, or None for a bug of this program, which needs a traceback."""
    if isinstance(error, WorkerError):
        return str(error).splitlines()
    if _is(error, "pyspark.errors", "PySparkException"):
        return [_of_spark(str(error), getattr(error, "_origin", None))]
    if _is(error, "py4j.protocol", "Py4JJavaError"):
        java: Any = error
        return [_of_spark(str(java.java_exception.toString()), java.java_exception)]
    if _is(error, "py4j.protocol", "Py4JNetworkError") or ("py4j" in sys.modules and isinstance(error, _CUT_OFF)):
        return [
            "Spark's JVM has ended, killed or out of memory: see what it said above, and run the same command again"
        ]
    return None


def is_unreachable(error: BaseException) -> bool:
    """Return whether Kafka or a topic cannot be reached, even if only Spark has noticed it, or one of its tasks."""
    if _is(error, "pyspark.errors", "PySparkException"):
        return _says_unreachable(str(error), getattr(error, "_origin", None))
    if _is(error, "py4j.protocol", "Py4JJavaError"):
        java: Any = error
        return _says_unreachable(str(java.java_exception.toString()), java.java_exception)
    return isinstance(error, BrokerError)


def _says_unreachable(text: str, origin: Any | None) -> bool:
    texts = [text]
    while origin is not None:
        texts.append(str(origin.toString()))
        origin = origin.getCause()
    return any(map(_UNREACHABLE.search, texts))


def _is(error: BaseException, module: str, name: str) -> bool:
    """Return whether the error is of that class, without importing the class."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _of_spark(text: str, origin: Any | None) -> str:
    """Return the line that matters: this project's error, else a task's Python error, else Spark's and its cause."""
    ours = _IN_TASK.findall(text)
    if ours:
        return str(ours[-1])
    in_python = _PYTHON.findall(text) if "Traceback" in text else []
    if in_python:
        return str(in_python[-1])[:_LONGEST]
    lines = [_first_line(text), _first_line(_deepest(origin))]
    if lines[1] and lines[0].startswith(_ABORTED):
        del lines[0]  # names the task, the stage and the host, which do not help the user
    return ": ".join(dict.fromkeys(line for line in lines if line))[:_LONGEST]


def _deepest(origin: Any | None) -> str:
    """Return the message of the deepest Java cause."""
    while origin is not None and origin.getCause() is not None:
        origin = origin.getCause()
    return "" if origin is None else str(origin.getMessage() or "")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return _STATE.sub("", _CLASS.sub("", lines[0])).strip().rstrip(".") if lines else ""
