"""The replica's name: its own among all on this machine, and the same again when it is started again."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from typing import TYPE_CHECKING

from worker.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 1_000  # replicas of one group on one machine


@contextlib.contextmanager
def claimed(group: str, wanted: str) -> Iterator[str]:
    """The name of this replica while it runs: ``wanted``, or else the host's, with a number if that is taken.

    The names of its transactions and static members are made from it, and two replicas of one name would fence each
    other for ever. Raises SettingsError if another replica on this machine has the name that was wanted.
    """
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as claim:
        for name in _candidates(wanted):
            if _take(claim, group, name):
                yield name
                return
    raise SettingsError(f"WORKER_REPLICA={wanted!r}: another replica of group {group} runs under that name here")


def _candidates(wanted: str) -> Iterator[str]:
    if wanted:
        yield wanted
        return
    host = socket.gethostname()
    yield host
    for number in range(1, MOST):
        yield f"{host}.{number}"


def _take(claim: socket.socket, group: str, name: str) -> bool:
    # A name of the kernel's, in no file system: it is free again as soon as its owner has ended, however that was.
    # Such names are short, and groups may not be.
    digest = hashlib.sha256(f"{group}/{name}".encode()).hexdigest()
    try:
        claim.bind(f"\0kafka-task-worker/{digest}")
    except OSError:
        return False
    return True
