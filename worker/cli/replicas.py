"""Asking replicas over HTTP what they work on."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import TYPE_CHECKING, Any

from worker.cli.console import say

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT = 5.0  # seconds


def running(urls: Sequence[str], port: int) -> list[dict[str, Any]]:
    """The processes of the replicas at ``urls``; without any, of the one on this machine, if it answers on ``port``.

    A replica that was named and does not answer is reported on stderr and left out.
    """
    if not urls:
        return _ask(f"http://127.0.0.1:{port}", named=False) if port else []
    return [process for url in urls for process in _ask(url, named=True)]


def _ask(url: str, *, named: bool) -> list[dict[str, Any]]:
    address = f"{url.rstrip('/').removesuffix('/tasks')}/tasks"
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT) as answer:  # noqa: S310 - an address the user gave
            return [_flat(url, process) for process in json.load(answer)["processes"]]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        # Also whatever another program on that port may have answered.
        if named:
            say(f"{address} does not answer as a replica: {error}")
        return []


def _flat(url: str, process: dict[str, Any]) -> dict[str, Any]:
    task = process.get("task") or {}
    return {
        "replica": url,
        "slot": process.get("slot"),
        "pid": process.get("pid"),
        "state": process.get("state"),
        "queued": process.get("queued"),
        "task": f"{task['topic']}[{task['partition']}]@{task['offset']}" if task else None,
        "attempt": task.get("attempt"),
        "seconds": task.get("seconds"),
    }
