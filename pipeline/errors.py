"""What can be wrong with a job, for the person who runs it: one clear line and an exit code."""

from __future__ import annotations

import re
import sys
from typing import Any

from worker.errors import BrokerError, SettingsError, WorkerError

__all__ = ["BrokerError", "JobError", "SettingsError", "WorkerError", "told"]

_CUT_OFF = (ConnectionRefusedError, ConnectionResetError)  # what py4j raises where nobody is left to talk to
_ABORTED = "Job aborted due to stage failure"
_LONGEST = 500  # characters of a message that comes from Spark
# The last line of a Python trace from one of Spark's tasks: our own class, and what it says.
_IN_TASK = re.compile(r"^(?:pipeline|worker)\.errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(\w[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+\w+: ")
_STATE = re.compile(r" SQLSTATE: \w+\s*$")


class JobError(WorkerError):
    """The job cannot go on: the message says why and what to do."""


def told(error: Exception) -> list[str] | None:
    """The lines that say what went wrong; None if it is a fault of this program, whose trace is wanted."""
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


def _is(error: Exception, module: str, name: str) -> bool:
    """Whether it is of that class, which need not have been imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(error, kind)


def _of_spark(text: str, origin: Any | None) -> str:
    """The line that matters: our own error in a task, or what a task's Python says, or Spark and the deepest cause."""
    ours = _IN_TASK.findall(text)
    if ours:
        return str(ours[-1])
    in_python = _PYTHON.findall(text) if "Traceback" in text else []
    if in_python:
        return str(in_python[-1])[:_LONGEST]
    lines = [_first_line(text), _first_line(_deepest(origin))]
    if lines[1] and lines[0].startswith(_ABORTED):
        del lines[0]  # which task of which stage on which host: nothing that its user can do anything with
    return ": ".join(dict.fromkeys(line for line in lines if line))[:_LONGEST]


def _deepest(origin: Any | None) -> str:
    """What the last of Java's causes says."""
    while origin is not None and origin.getCause() is not None:
        origin = origin.getCause()
    return "" if origin is None else str(origin.getMessage() or "")


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return _STATE.sub("", _CLASS.sub("", lines[0])).strip().rstrip(".") if lines else ""
