"""A replica of stand-ins, run by the tests as a program: ``replica.py FOLDER OPTIONS-AS-JSON``."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

# The command line imports these modules. A child must not get them by importing this script.
import click
import prometheus_client
import pydantic_settings
import rich

from worker import logs
from worker.core.liveness import Limits
from worker.process.config import ProcessConfig
from worker.supervisor import group_leaver, slots
from worker.supervisor.http import serving
from worker.supervisor.replica_status import ReplicaStatus
from worker.supervisor.signals import Signals
from worker.supervisor.supervisor import Plan, Supervisor

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
USED = (click, prometheus_client, pydantic_settings, rich)


def config(slot: int, behaviour: str, folder: str) -> ProcessConfig:
    return ProcessConfig(
        name=f"test-{slot}",
        slot=slot,
        group=folder,  # where ``stand_in.leave`` writes
        request_topics=("requests",),
        ack_topic="answers",
        dead_letter_topic="dead-letters",
        consumer_properties={"consumer": {}},
        revoke_hold={},
        producer_properties={},
        checker_properties={},
        handler=behaviour,
        handler_kwargs={"folder": folder},
        guarantee="at-least-once",
        ordering="partition",
        max_attempts=3,
        retry_first=1,
        retry_greatest=1,
        max_answer_bytes=1000,
        max_dead_letter_bytes=1000,
        log_level="INFO",
        log_format="json",
    )


def inherit_orphans() -> None:
    """Adopt orphans, as PID 1 does. One of them is the child of a child."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(7)
        os._exit(0)


def refuse(times: int) -> None:
    """Let this many starts fail, as with a kernel that cannot create another process."""
    real, left = slots.ProcessHandle, [None] * times

    def start(*arguments: Any, **more: Any) -> slots.ProcessHandle:
        if left:
            left.pop()
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real(*arguments, **more)

    slots.ProcessHandle = start  # type: ignore[assignment, misc]


def fail_after(seconds: float) -> None:
    """Let the supervisor raise an error that nobody expects."""
    end = time.monotonic() + seconds
    real = Supervisor._turn

    def turn(one: Supervisor, now: float) -> None:
        if now >= end:
            raise RuntimeError("scripted")
        real(one, now)

    Supervisor._turn = turn  # type: ignore[assignment, method-assign]


def main(folder: str, behaviours: list[str], **options: Any) -> int:
    logs.configure("INFO", "json")
    if options.pop("orphans", False):
        inherit_orphans()
    refuse(options.pop("refused", 0))
    fail_after(options.pop("failing_after", math.inf))
    group_leaver.TARGET = options.pop("leaver", group_leaver.TARGET)
    group_leaver.LIMIT = options.pop("leaver_limit", group_leaver.LIMIT)
    options["limits"] = Limits(*options.get("limits", ()))
    port = options.pop("port", 0)
    plan = Plan(
        configs=[config(slot, behaviour, folder) for slot, behaviour in enumerate(behaviours)],
        partitions=len(behaviours),
        drain_timeout=options.pop("drain_timeout", 0),
        target="stand_in:run",
        **options,
    )
    status = ReplicaStatus()
    with Signals() as signals, serving(status, port):
        (Path(folder) / "ready").touch()
        return Supervisor(plan, signals, status).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], **json.loads(sys.argv[2])))
