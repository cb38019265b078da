"""Processes that end with the suite, whatever ends it, and what only root can do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).parents[1]
MARKER = "CHAOS_RUN"  # in the environment of everything that a run starts
_PORTS = range(20_000, 32_000)  # below those that the kernel gives to outgoing connections
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PREPARE = "ip link set lo up && iptables -F INPUT"
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000  # linux/sched.h
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000  # linux/mount.h


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, cwd: Path = ROOT
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own. From the main thread only: the kernel asks whether that still lives."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - it makes one system call
        )


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def marked(run: str) -> dict[int, str]:
    """The processes that carry the run's mark and have not ended, with their command lines."""
    found = {}
    mark = f"{MARKER}={run}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if mark in environment and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())[:200]
    return found


def free_ports(count: int) -> list[int]:
    """So many ports that nobody uses now, and that the kernel gives to nobody while a broker is down."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports in {_PORTS}")


# -- root


def private_machine() -> bool:
    """What is mounted and which packets are dropped from now on is so for this process and its children alone.

    It goes when they end, whatever ends them. Before any thread is started. False where that cannot be had.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    if not done(
        "unshare", "-m", "-n", "sh", "-c", _PREPARE
    ):  # in a child first: half of it would be worse than nothing
        return False
    if _LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        return False
    private: Any = _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    return bool(private == 0) and done("sh", "-c", _PREPARE)


def done(*command: str) -> bool:
    """Whether the command is there and ends well."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def mount_small(folder: Path, megabytes: int) -> None:
    """A file system of this size. ``private_machine`` comes first."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m".encode()
    if _LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount", str(folder))


def unmount(folder: Path) -> None:
    """The opposite; nothing if it is none."""
    _LIBC.umount2(bytes(folder), 2)  # detached now, freed when nobody uses it
