"""Asks replicas over HTTP which tasks their processes run."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import TYPE_CHECKING, Any

from worker.cli.console import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT = 5.0  # seconds
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach this machine's loopback
_TASK = ("topic", "partition", "offset")  # a task has at least these


def running(urls: Sequence[str], port: int) -> list[dict[str, Any]]:
    """Return the processes of the replicas at ``urls``. Without any: of the replica on this machine, if one uses
    ``port``.

    If a named replica does not respond, report that on stderr and leave it out.
    """
    if not urls:
        return _rows(f"http://127.0.0.1:{port}", named=False) if port else []
    return [row for url in urls for row in _rows(url, named=True)]


def processes(url: str, *, named: bool) -> list[dict[str, Any]]:
    """Return the processes of a replica, as its ``/tasks`` shows them; none if it does not respond.

    Report that on stderr if the user ``named`` the replica.
    """
    address = f"{url.rstrip('/').removesuffix('/tasks')}/tasks"
    get = urllib.request.urlopen if named else _DIRECT.open
    try:
        with get(address, timeout=TIMEOUT) as response:
            return [_checked(process) for process in json.load(response)["processes"]]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        # This also handles the response of another program on that port.
        if named:
            echo(f"{address} does not respond as a replica: {error}")
        return []


def _checked(process: dict[str, Any]) -> dict[str, Any]:
    if not all(name in task for task in tasks_of(process) for name in _TASK):
        raise ValueError("a task without its origin")
    return process


def _rows(url: str, *, named: bool) -> list[dict[str, Any]]:
    """Return each process with its replica. ``task`` and ``beside`` have the form of ``/tasks``."""
    names = ("slot", "pid", "state", "queued", "task", "beside")
    return [{"replica": url, **{name: row.get(name) for name in names}} for row in processes(url, named=named)]


def tasks_of(process: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all tasks that run in a process, including those in extra slots."""
    task = process.get("task")
    return [*([task] if task else []), *(process.get("beside") or [])]


def flat(process: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a process for ``worker status``: one per task, or one without a task."""
    rest = {name: value for name, value in process.items() if name not in ("task", "beside")}
    return [{**rest, **_row(task)} for task in tasks_of(process) or [{}]]


def _row(task: dict[str, Any]) -> dict[str, Any]:
    origin = "/".join(str(task[name]) for name in _TASK) if task else None
    return {"task": origin, **{name: task.get(name) for name in ("key", "sequence", "attempt", "seconds")}}
