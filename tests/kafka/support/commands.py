"""The command line as a program, with the settings of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

WAIT_LIMIT = 50.0  # seconds for a command


class Done(NamedTuple):
    code: int
    out: str
    err: str


def clean_environment() -> dict[str, str]:
    """Return the environment of the tests without settings of the worker."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "WORKER_"))}


class Commands:
    """A runner of commands with ``environment``. Each command may add variables."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment

    def start(self, *arguments: str, stdout: int = subprocess.PIPE, **environment: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "worker", *arguments],
            env={**clean_environment(), "TERM": "xterm", **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: object, **environment: Any) -> Done:
        process = self.start(*map(str, arguments), **environment)
        out, err = process.communicate(timeout=WAIT_LIMIT)
        return Done(process.returncode, out, err)
