"""Processes that end with the suite, however it ends, and operations that need root."""

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
MARKER = "CHAOS_RUN"  # in the environment of every process that a run starts
_PORTS = range(20_000, 32_000)  # below the range of outgoing connections
_given: set[int] = set()
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PREPARE = ("ip", "link", "set", "lo", "up")
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000  # linux/sched.h
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000  # linux/mount.h


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, cwd: Path = ROOT
) -> subprocess.Popen[bytes]:
    """Start a process in a new session. Main thread only: the kernel kills the process when this thread ends."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - it makes a single system call
        )


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def session(leader: int) -> list[int]:
    """Return the living processes of the session of a process that ``start`` has started, oldest first."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append((process.create_time(), process.pid))
    return [pid for _, pid in sorted(found)]


def remote_ports(pid: int) -> set[int]:
    """Return the ports that a process is connected to. Empty if it has ended."""
    with contextlib.suppress(OSError, psutil.Error):
        found = psutil.Process(pid).net_connections("tcp")
        return {one.raddr.port for one in found if one.status == psutil.CONN_ESTABLISHED}
    return set()


def marked(run: str) -> dict[int, str]:
    """Return the living processes with the run's mark, with their command lines."""
    found = {}
    entry = f"{MARKER}={run}".encode()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if entry in environment and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())[:200]
    return found


def free_ports(count: int) -> list[int]:
    """Return unused ports, each only once. The kernel does not give them to other processes while a broker is down."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if port in _given:  # to a broker that does not listen yet
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
            _given.add(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"no {count} free ports in {_PORTS}")


# -- root


def private_machine() -> frozenset[str]:
    """Enter private mount and network namespaces. They end with this process and its children.

    Call it before any thread is started. Return the rights it gives (``chaos.faults.RIGHTS``). Dropping packets also
    needs iptables.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return frozenset()
    if not succeeds("unshare", "-m", "-n", *_PREPARE):  # in a child first, because half of it would be worse than none
        return frozenset()
    if _LIBC.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        return frozenset()
    private: Any = _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    if private != 0 or not succeeds(*_PREPARE):
        return frozenset()
    return frozenset({"disks", *(["packets"] if succeeds("iptables", "-F", "INPUT") else [])})


def seconds_without_cpu() -> float:
    """Return for how many seconds since the boot some process of the machine has waited for a CPU; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):  # the kernel was built or started without it
        some = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return 0.0


def succeeds(*command: str) -> bool:
    """Return whether the command exists and exits with 0."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def mount_small(folder: Path, megabytes: int) -> None:
    """Mount a file system of this size. Call ``private_machine`` first."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={megabytes}m".encode()
    if _LIBC.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, options) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount", str(folder))


def unmount(folder: Path) -> None:
    """Unmount it. Do nothing if nothing is mounted."""
    _LIBC.umount2(bytes(folder), 2)  # detach now, free it after its last use
